"""The 8-byte prefix of describe, ready and plan payloads (wire.md 5), and the judgement of a payload's size."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ropeway.wire.errors import ErrorCode, ProtocolError

PREFIX_MAGIC: Final = 0x50534654
PROTOCOL: Final = 1


class Message(IntEnum):
    """Which payload follows the prefix (wire.md 5)."""

    DESCRIBE = 1
    READY = 2
    PLAN = 3


def judge_prefix(magic: int, protocol: int, message: int, expected: Message) -> None:
    """Judge a payload's prefix. Raises ProtocolError `prefix_magic`, `prefix_protocol` or `prefix_message`."""
    if magic != PREFIX_MAGIC:
        raise ProtocolError(ErrorCode.PREFIX_MAGIC, f"prefix magic is {magic:#010x}, expected {PREFIX_MAGIC:#010x}")
    if protocol != PROTOCOL:
        raise ProtocolError(ErrorCode.PREFIX_PROTOCOL, f"prefix protocol is {protocol}, expected {PROTOCOL}", 4)
    if message != expected:
        raise ProtocolError(
            ErrorCode.PREFIX_MESSAGE,
            f"prefix message is {message}, expected {int(expected)} ({expected.name.lower()})",
            6,
        )


def judge_least(size: int, least: int, what: str) -> None:
    """Judge that a payload has at least its fixed part. Raises ProtocolError `truncated`."""
    if size < least:
        raise ProtocolError(ErrorCode.TRUNCATED, f"a {what} of {size} bytes, expected at least {least}", size)


def judge_size(size: int, expected: int, what: str) -> None:
    """Judge a payload's size against what its counts say. Raises ProtocolError `truncated` or `too_long`."""
    if size != expected:
        code = ErrorCode.TRUNCATED if size < expected else ErrorCode.TOO_LONG
        raise ProtocolError(code, f"a {what} of {size} bytes, its counts say {expected}", min(size, expected))


def reserved(what: str, value: object, at: int) -> ProtocolError:
    """The error for a reserved field that is not zero."""
    return ProtocolError(ErrorCode.RESERVED_NOT_ZERO, f"reserved field of {what} is {value}, expected 0", at)
