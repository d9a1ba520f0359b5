"""Captured bytes as messages, for people and tests: frames one after another, judged without a connection's state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import Final

from ropeway.wire.boot import Describe, Ready, decode_describe, decode_ready
from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.frames import (
    HEADER_BYTES,
    MAGIC,
    PROOF_BYTES,
    Header,
    Kind,
    Payload,
    decode_header,
    judge_length,
    judge_roundless,
    judge_rows,
)
from ropeway.wire.hello import Hello, decode_hello
from ropeway.wire.plan import Plan, decode_plan
from ropeway.wire.prefix import judge_size
from ropeway.wire.results import Done, Fate, Tokens, decode_done, decode_fate, decode_tokens

_MAGIC_BYTES: Final = MAGIC.to_bytes(4, "little")
_SHOWN_BYTES: Final = 32
"""Bytes of a payload without structure that a line shows."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A payload without a structure of its own: a proof, rows, a probe, or an echo's nothing."""

    payload: bytes


Message = Hello | Describe | Ready | Plan | Tokens | Done | Fate | Raw


@dataclass(frozen=True, slots=True)
class Captured:
    """One frame of a capture, from byte `offset` on."""

    offset: int
    header: Header
    message: Message


@dataclass(frozen=True, slots=True)
class Broken:
    """What is wrong with a capture, and at which byte of it."""

    offset: int
    error: ProtocolError


def parse_hex(text: str) -> bytes:
    """Bytes of hex digits in pairs; `#` begins a comment. Raises ValueError with the line's number."""
    raw = bytearray()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            raw += bytes.fromhex(line.partition("#")[0])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return bytes(raw)


def load_capture(raw: bytes) -> bytes:
    """The frames of a file: as they are where they begin with the magic or are no text, else from hex.

    Raises ValueError for a text that is no hex.
    """
    if raw.startswith(_MAGIC_BYTES):
        return raw
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    return parse_hex(text)


def read_capture(raw: bytes) -> Iterator[Captured | Broken]:
    """The frames in `raw`, in order. A bad payload is passed over by its length; a bad header ends the capture."""
    offset = 0
    while offset < len(raw):
        start = offset
        try:
            header = decode_header(raw[start : start + HEADER_BYTES])
            judge_length(header)
            judge_roundless(header)
            judge_rows(header)
        except ProtocolError as error:
            yield Broken(start + error.at, error)
            return
        start += HEADER_BYTES
        payload = raw[start : start + header.length]
        if len(payload) < header.length:
            what = f"the capture ends {header.length - len(payload)} bytes short of a {header.kind.label} frame"
            yield Broken(len(raw), ProtocolError(ErrorCode.TRUNCATED, what))
            return
        try:
            yield Captured(offset, header, decode_message(header, payload))
        except ProtocolError as error:
            yield Broken(start + error.at, error)
        offset = start + header.length


def decode_message(header: Header, payload: Payload) -> Message:
    """What a payload means, as far as its frame alone can tell. Raises the ProtocolError of its kind's decoder."""
    match header.kind:
        case Kind.HELLO:
            return decode_hello(payload)
        case Kind.DESCRIBE:
            return decode_describe(payload)
        case Kind.READY:
            return decode_ready(payload)
        case Kind.PLAN:
            return decode_plan(payload)
        case Kind.TOKENS:
            return decode_tokens(payload)
        case Kind.DONE:
            return decode_done(payload)
        case Kind.FATE:
            return decode_fate(payload)
        case Kind.PROOF:
            judge_size(len(payload), PROOF_BYTES, "proof")
        case Kind.ROWS:
            if len(payload) % header.rows:
                raise ProtocolError(
                    ErrorCode.ROWS_LENGTH, f"{len(payload)} bytes of rows are not {header.rows} rows of one size"
                )
        case Kind.PROBE | Kind.ECHO:
            pass
    return Raw(bytes(payload))


def describe_frame(frame: Captured) -> str:
    """One line: where it is, its kind, the header's fields that say something, the message's fields by name."""
    header = frame.header
    words = [f"@{frame.offset}", header.kind.label]
    if header.kind is Kind.ROWS:
        words.append(f"round={header.round} part={header.part} rows={header.rows}")
        words.append(f"row_bytes={header.length // header.rows}")
    elif header.round:
        words.append(f"round={header.round}")
    if isinstance(frame.message, Raw):
        words.append(f"payload={_show_bytes(frame.message.payload)}")
    else:
        words.append(_show_fields(frame.message))
    return " ".join(words)


def _show_fields(message: object) -> str:
    assert is_dataclass(message)
    return " ".join(f"{field.name}={_show(getattr(message, field.name))}" for field in fields(message))


def _show(value: object) -> str:
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{' '.join(_show(item) for item in value)}]"
    if is_dataclass(value):
        return f"{{{_show_fields(value)}}}"
    return str(value)


def _show_bytes(payload: bytes) -> str:
    more = f"...({len(payload)} bytes)" if len(payload) > _SHOWN_BYTES else ""
    return payload[:_SHOWN_BYTES].hex() + more
