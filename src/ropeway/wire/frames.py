"""The 32-byte frame header (wire.md 2): encoding, decoding, and the checks that need no state.

Knows nothing of what a payload means, nor of what is legal when (conversation.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from zlib import crc32

from ropeway.wire.errors import ErrorCode, ProtocolError

MAGIC: Final = 0x4C534654
VERSION: Final = 1
HEADER_BYTES: Final = 32
U32_MAX: Final = 0xFFFFFFFF

Payload = bytes | bytearray | memoryview
"""Bytes that a decoder reads; a memoryview must be of format B."""

_HEADER: Final = struct.Struct("<IHBBQIIII")
_CHECKED: Final = struct.Struct("<IHBBQIII")
_U32: Final = struct.Struct("<I")


class Kind(IntEnum):
    """Kinds of frames (wire.md 2)."""

    HELLO = 1
    PROOF = 2
    DESCRIBE = 3
    READY = 4
    PLAN = 5
    ROWS = 6
    TOKENS = 7
    DONE = 8
    FATE = 9
    PROBE = 10
    ECHO = 11

    @property
    def label(self) -> str:
        """The name that wire.md 2 gives it."""
        return self.name.lower()


class Channel(IntEnum):
    """What a connection is for (wire.md 1)."""

    CONTROL = 1
    ROWS = 2
    PROBE = 3

    @property
    def label(self) -> str:
        """The name that wire.md 1 gives it."""
        return self.name.lower()


HELLO_BYTES: Final = 80
PROOF_BYTES: Final = 32

_KINDS: Final = {int(kind): kind for kind in Kind}
_EXACT: Final = {Kind.HELLO: HELLO_BYTES, Kind.PROOF: PROOF_BYTES, Kind.ECHO: 0}
_LARGEST: Final = {
    **_EXACT,
    Kind.DESCRIBE: 64 << 10,
    Kind.READY: 64 << 10,
    Kind.PLAN: 16 << 20,
    Kind.ROWS: U32_MAX,
    Kind.TOKENS: 1 << 20,
    Kind.DONE: 1 << 20,
    Kind.FATE: 520,
    Kind.PROBE: 64 << 20,
}
ROUNDLESS: Final = frozenset({Kind.HELLO, Kind.PROOF, Kind.DESCRIBE, Kind.READY, Kind.FATE})


@dataclass(frozen=True, slots=True)
class Header:
    """One frame's header: `length` payload bytes follow; `rows` and `part` are 0 except in a rows frame."""

    kind: Kind
    round: int
    rows: int
    part: int
    length: int


def encode_header(header: Header) -> bytes:
    """The 32 bytes of a header. Raises ProtocolError `bad_value` when a field does not fit its width."""
    try:
        head = _CHECKED.pack(MAGIC, VERSION, header.kind, 0, header.round, header.rows, header.part, header.length)
    except struct.error as error:
        raise ProtocolError(ErrorCode.BAD_VALUE, f"{header}: {error}") from None
    return head + _U32.pack(crc32(head))


def decode_header(raw: Payload) -> Header:
    """Decode 32 bytes, judging magic, check, version, flags and kind, in this order (wire.md 2).

    Raises ProtocolError `truncated`, `bad_magic`, `bad_check`, `bad_version`, `bad_flags` or `bad_kind`.
    """
    if len(raw) < HEADER_BYTES:
        raise ProtocolError(ErrorCode.TRUNCATED, f"a header of {len(raw)} bytes, expected {HEADER_BYTES}", len(raw))
    magic, version, number, flags, round_, rows, part, length, check = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise ProtocolError(ErrorCode.BAD_MAGIC, f"magic is {magic:#010x}, expected {MAGIC:#010x}")
    if check != (expected := crc32(raw[:28])):
        raise ProtocolError(ErrorCode.BAD_CHECK, f"check is {check:#010x}, expected {expected:#010x}", 28)
    if version != VERSION:
        raise ProtocolError(ErrorCode.BAD_VERSION, f"version is {version}, expected {VERSION}", 4)
    if flags:
        raise ProtocolError(ErrorCode.BAD_FLAGS, f"flags are {flags:#04x}, expected 0", 7)
    kind = _KINDS.get(number)
    if kind is None:
        raise ProtocolError(ErrorCode.BAD_KIND, f"kind is {number}, expected 1 to {max(Kind)}", 6)
    return Header(kind, round_, rows, part, length)


def judge_length(header: Header) -> None:
    """Judge the payload's length against its kind's limit (wire.md 2).

    Raises ProtocolError `too_long`, or `truncated` where the length is exact.
    """
    largest = _LARGEST[header.kind]
    if header.length > largest:
        raise ProtocolError(
            ErrorCode.TOO_LONG, f"length of a {header.kind.label} frame is {header.length}, at most {largest}", 24
        )
    if header.length < _EXACT.get(header.kind, 0):
        raise ProtocolError(
            ErrorCode.TRUNCATED, f"length of a {header.kind.label} frame is {header.length}, expected {largest}", 24
        )


def judge_roundless(header: Header) -> None:
    """Judge that a boot or fate frame belongs to no round (wire.md 2). Raises ProtocolError `round_order`."""
    if header.round and header.kind in ROUNDLESS:
        raise ProtocolError(
            ErrorCode.ROUND_ORDER, f"round of a {header.kind.label} frame is {header.round}, expected 0", 8
        )


def judge_rows(header: Header) -> None:
    """Judge that `rows` and `part` are 0 outside a rows frame, and that a rows frame has rows and bytes (wire.md 2, 8).

    Raises ProtocolError `reserved_not_zero`, `empty_rows` or `rows_length`.
    """
    if header.kind is Kind.ROWS:
        if header.rows == 0:
            raise ProtocolError(ErrorCode.EMPTY_ROWS, "rows of a rows frame are 0", 16)
        if header.length == 0:
            raise ProtocolError(ErrorCode.ROWS_LENGTH, f"{header.rows} rows in a frame without payload", 24)
        return
    if header.rows:
        raise ProtocolError(
            ErrorCode.RESERVED_NOT_ZERO, f"rows of a {header.kind.label} frame are {header.rows}, expected 0", 16
        )
    if header.part:
        raise ProtocolError(
            ErrorCode.RESERVED_NOT_ZERO, f"part of a {header.kind.label} frame is {header.part}, expected 0", 20
        )
