"""Reading JSON that is still being written: how far a value goes, and whether text begins like a tool call."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BLANK: Final = " \t\r\n"


class Verdict(Enum):
    """What a beginning can still become."""

    CALL = "call"
    OPEN = "open"
    """More text will tell."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Head:
    """The verdict on a beginning; for a call its name and where the object with its arguments begins."""

    verdict: Verdict
    name: str = ""
    arguments_at: int = 0


def read_head(text: str, start: int = 0) -> Head:
    """Judge text that may begin {"name": "f", "arguments": { from `start` on; "parameters" is the same to us, and a
    leading "type": "function" is passed over."""
    at = _expect(text, start, "{")
    name = ""
    for expected in ("type", "name"):
        if at is None or at < 0:
            return _undecided(at)
        key = _expect(text, at, f'"{expected}"')
        if key is None and expected == "type":
            continue
        at = key if key is None or key < 0 else _expect(text, key, ":")
        if at is None or at < 0:
            return _undecided(at)
        at = _skip(text, at)
        value = _STRING.match(text, at)
        if value is None:
            return Head(Verdict.OPEN) if at == len(text) or text[at] == '"' else Head(Verdict.OTHER)
        if expected == "type" and value.group() != '"function"':
            return Head(Verdict.OTHER)
        if expected == "name":
            try:
                name = json.loads(value.group())
            except ValueError:
                return Head(Verdict.OTHER)
        at = _expect(text, value.end(), ",")
    if at is None or at < 0:
        return _undecided(at)
    for key_text in ('"arguments"', '"parameters"'):
        end = _expect(text, at, key_text)
        if end is None:
            continue
        colon = end if end < 0 else _expect(text, end, ":")
        opened = colon if colon is None or colon < 0 else _expect(text, colon, "{")
        return Head(Verdict.CALL, name, opened - 1) if opened is not None and opened > 0 else _undecided(opened)
    return Head(Verdict.OTHER)


class ObjectEnd:
    """Finds where a JSON object ends in text that comes in pieces. The first character must be its brace."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def push(self, text: str) -> int:
        """Characters of `text` up to and including the closing brace; -1 while it is not there."""
        for at, char in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = char == "\\"
                self._in_string = char != '"'
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return at + 1
        return -1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _expect(text: str, at: int, wanted: str) -> int | None:
    """Behind `wanted`, blanks before it passed over; -1 where the text ends too early to say, None where it differs."""
    at = _skip(text, at)
    if text.startswith(wanted, at):
        return at + len(wanted)
    return -1 if wanted.startswith(text[at : at + len(wanted)]) and at + len(wanted) > len(text) else None


def _undecided(at: int | None) -> Head:
    return Head(Verdict.OTHER if at is None else Verdict.OPEN)
