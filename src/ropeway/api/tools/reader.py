"""Tool calls out of a reply's text as it comes. Sans-IO: text in, pieces out.

A call's name is told as soon as it is known, its arguments as they come, as the very text that the model wrote. What
only looked like a call, or names no tool that was given, stays text.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ropeway.api.tools.forms import CALL_CLOSE, CALL_OPEN, PYTHON_TAG, ToolForm
from ropeway.api.tools.json_text import ObjectEnd, Verdict, read_head

BETWEEN: Final = " \t\r\n;"
"""What may stand before a call and between two in Llama's form."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """The reply's `index`-th call, of the function `name`."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments, JSON in the making."""

    index: int
    text: str


Piece = Text | CallBegan | CallArguments


class _At(Enum):
    TEXT = "text"
    HEAD = "head"
    ARGUMENTS = "arguments"
    TAIL = "tail"


class ToolReader:
    """One reply's calls. `several` False: everything behind the first call is dropped, and `done` says so at once."""

    def __init__(self, form: ToolForm, names: Collection[str], *, several: bool = True) -> None:
        self._llama = form is ToolForm.LLAMA
        self._names = frozenset(names)
        self._several = several
        self._at = _At.HEAD if self._llama else _At.TEXT
        self._held = ""
        self._blank = ""
        self._end = ObjectEnd()
        self._text_only = False
        self.calls = 0
        """Calls begun so far."""
        self.done = False
        """The one call that was wanted is complete: the rest of the reply is not needed."""

    def push(self, text: str) -> list[Piece]:
        """What the next text of the reply makes certain."""
        self._held += text
        return self._read(final=False)

    def flush(self) -> list[Piece]:
        """What is left at the end of the reply."""
        return self._read(final=True)

    def _read(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        while not self.done:
            before = (self._at, len(self._held))
            step = {_At.TEXT: self._text, _At.HEAD: self._head, _At.ARGUMENTS: self._arguments, _At.TAIL: self._tail}
            pieces += step[self._at](final)
            if (self._at, len(self._held)) == before:
                break
        return pieces

    def _text(self, final: bool) -> list[Piece]:
        """Text goes out up to a call's opening; blanks before one are the form's, and go out only if none comes."""
        found = -1 if self._text_only else self._held.find(CALL_OPEN)
        if found >= 0:
            text = self._held[:found].rstrip()
            self._blank, self._held = self._held[len(text) : found], self._held[found:]
            self._at = _At.HEAD
        else:
            keep = len(self._held) if final or self._text_only else _certain(self._held)
            text, self._held = self._held[:keep], self._held[keep:]
            if final and self.calls and CALL_OPEN.startswith(text.strip()):
                return []  # nothing, or a further call that was cut off
        return [Text(text)] if text else []

    def _head(self, final: bool) -> list[Piece]:
        start = self._json_start()
        head = read_head(self._held, start) if start >= 0 else None
        if head is not None and head.verdict is Verdict.CALL and head.name in self._names:
            return self._begin(head.name, head.arguments_at)
        if not self._llama:
            close = self._held.find(CALL_CLOSE)
            if close >= 0 or final:
                end = close if close >= 0 else len(self._held)
                return self._whole(self._held[len(CALL_OPEN) : end], min(end + len(CALL_CLOSE), len(self._held)))
            other = head is not None and head.verdict is Verdict.CALL
        else:
            other = head is None or head.verdict is not Verdict.OPEN
            if start < 0 and not final and PYTHON_TAG.startswith(self._held.strip(BETWEEN)):
                return []
        return self._give_up() if other or final else []

    def _json_start(self) -> int:
        """Where the call's JSON should begin; -1 where the opening is not there (Llama: where text is)."""
        if not self._llama:
            return len(CALL_OPEN)
        start = len(self._held) - len(self._held.lstrip(BETWEEN))
        start += len(PYTHON_TAG) if self._held.startswith(PYTHON_TAG, start) else 0
        return start if self._held[start:].lstrip()[:1] == "{" else -1

    def _begin(self, name: str, arguments_at: int) -> list[Piece]:
        self._held = self._held[arguments_at:]
        self._at, self._end = _At.ARGUMENTS, ObjectEnd()
        self.calls += 1
        return [CallBegan(self.calls - 1, name)]

    def _arguments(self, final: bool) -> list[Piece]:
        end = self._end.push(self._held)
        if end < 0:
            text, self._held = self._held, ""
        else:
            text, self._held = self._held[:end], self._held[end:]
            self._at = _At.TAIL
            self.done = not self._several
        return [CallArguments(self.calls - 1, text)] if text else []

    def _tail(self, final: bool) -> list[Piece]:
        if self._llama:
            rest = self._held.lstrip(" \t\r\n")
            if rest.startswith("}"):
                self._held, self._at = rest[1:], _At.HEAD
            elif rest or final:
                return self._give_up()
        else:
            close = self._held.find(CALL_CLOSE)
            if close >= 0:
                self._held, self._at = self._held[close + len(CALL_CLOSE) :], _At.TEXT
            elif final:
                self._held = ""
        return []

    def _whole(self, written: str, end: int) -> list[Piece]:
        """A call whose keys came in another order, read once it is complete; else text."""
        try:
            call = json.loads(written)
        except ValueError:
            call = None
        if isinstance(call, dict) and call.get("name") in self._names:
            arguments = call.get("arguments", call.get("parameters", {}))
            if isinstance(arguments, dict):
                pieces = self._begin(str(call["name"]), end)
                self._at, self.done = _At.TEXT, not self._several
                return [*pieces, CallArguments(self.calls - 1, json.dumps(arguments, ensure_ascii=False))]
        text, self._held = self._held[:end], self._held[end:]
        self._at = _At.TEXT
        return [Text(self._blank + text)]

    def _give_up(self) -> list[Piece]:
        """It is text after all; in Llama's form all that follows is, too."""
        self._at = _At.TEXT
        if self._llama:
            self._text_only = True
            if self.calls and not self._held.strip(BETWEEN):
                self._held = ""
            return []
        text, self._held = self._held[: len(CALL_OPEN)], self._held[len(CALL_OPEN) :]
        return [Text(self._blank + text)]


def _certain(text: str) -> int:
    """Characters that are text whatever follows: not blanks at the end, and not what may begin an opening."""
    end = len(text)
    for size in range(min(len(CALL_OPEN) - 1, len(text)), 0, -1):
        if CALL_OPEN.startswith(text[-size:]):
            end = len(text) - size
            break
    return len(text[:end].rstrip())
