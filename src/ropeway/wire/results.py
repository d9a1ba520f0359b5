"""What comes back (wire.md 8): tokens, done and fate, as values and as bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ropeway.wire.entries import KEY_BYTES
from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.frames import Payload
from ropeway.wire.prefix import judge_least, judge_size, reserved

FATE_TEXT_BYTES: Final = 512

_TOKENS: Final = struct.Struct("<II")
_TOKEN: Final = struct.Struct("<4I")
"""stream, token, position, done (its three reserved bytes are the upper 24 bits)."""
_DONE: Final = struct.Struct("<IIQQQ")
_ACK: Final = struct.Struct("<16sI")
"""key, ok (reserved bytes likewise)."""
_FATE: Final = struct.Struct("<BBHI")
_ERRORS: Final = {int(code): code for code in ErrorCode}


@dataclass(frozen=True, slots=True)
class Token:
    """A stream's next token, the position of its next forward, and whether the stream ends with it."""

    stream: int
    token: int
    position: int
    done: bool


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one round (`sampler: last`), ascending by stream; at least one."""

    tokens: tuple[Token, ...]

    def encode(self) -> bytes:
        """The payload. Raises ProtocolError `empty_rows`, `stream_order` or `bad_value`."""
        _judge_tokens(self.tokens)
        try:
            pieces = [_TOKENS.pack(len(self.tokens), 0)]
            pieces.extend([_TOKEN.pack(t.stream, t.token, t.position, t.done) for t in self.tokens])
        except struct.error as error:
            raise ProtocolError(ErrorCode.BAD_VALUE, f"a field of the tokens does not fit: {error}") from None
        return b"".join(pieces)


def decode_tokens(payload: Payload) -> Tokens:
    """Decode a tokens payload.

    Raises ProtocolError `truncated`, `reserved_not_zero`, `too_long`, `bad_value` (done), `empty_rows` or
    `stream_order`.
    """
    judge_least(len(payload), _TOKENS.size, "tokens payload")
    count, spare = _TOKENS.unpack_from(payload)
    if spare:
        raise reserved("the tokens", spare, 4)
    judge_size(len(payload), _TOKENS.size + _TOKEN.size * count, "tokens payload")
    words = list(_TOKEN.iter_unpack(memoryview(payload)[_TOKENS.size :]))
    _judge_flags([w[3] for w in words], "token", _TOKENS.size + 12, _TOKEN.size)
    tokens = tuple([Token(stream, token, position, bool(done)) for stream, token, position, done in words])
    _judge_tokens(tokens)
    return Tokens(tokens)


def _judge_tokens(tokens: tuple[Token, ...]) -> None:
    if not tokens:
        raise ProtocolError(ErrorCode.EMPTY_ROWS, "a tokens payload without tokens")
    last = -1
    for index, token in enumerate(tokens):
        if token.stream <= last:
            raise ProtocolError(
                ErrorCode.STREAM_ORDER,
                f"token {index} is of stream {token.stream}, after stream {last}",
                _TOKENS.size + _TOKEN.size * index,
            )
        last = token.stream


def _judge_flags(words: list[int], what: str, at: int, step: int) -> None:
    """Judge flag words (a u8 flag and three reserved bytes): first every reserved byte, then every flag."""
    for index, word in enumerate(words):
        if word > 0xFF:
            raise reserved(f"{what} {index}", f"{word >> 8:#08x}", at + step * index + 1)
    for index, word in enumerate(words):
        if word > 1:
            raise ProtocolError(
                ErrorCode.BAD_VALUE, f"flag of {what} {index} is {word}, expected 0 or 1", at + step * index
            )


@dataclass(frozen=True, slots=True)
class CacheAck:
    """Whether a stage has kept its part of the state under a 16-byte key."""

    key: bytes
    ok: bool


@dataclass(frozen=True, slots=True)
class Done:
    """One stage's end of a round: acknowledged saves, and where its time went, in nanoseconds."""

    rank: int
    acks: tuple[CacheAck, ...] = ()
    wait_rows_ns: int = 0
    forward_ns: int = 0
    wait_send_ns: int = 0

    def encode(self) -> bytes:
        """The payload. Raises ProtocolError `bad_value`."""
        for index, ack in enumerate(self.acks):
            if len(ack.key) != KEY_BYTES:
                raise ProtocolError(ErrorCode.BAD_VALUE, f"key of acknowledgement {index} has {len(ack.key)} bytes")
        try:
            head = _DONE.pack(self.rank, len(self.acks), self.wait_rows_ns, self.forward_ns, self.wait_send_ns)
        except struct.error as error:
            raise ProtocolError(ErrorCode.BAD_VALUE, f"a field of {self} does not fit: {error}") from None
        return head + b"".join([_ACK.pack(ack.key, ack.ok) for ack in self.acks])


def decode_done(payload: Payload) -> Done:
    """Decode a done payload. Raises ProtocolError `truncated`, `too_long`, `reserved_not_zero` or `bad_value` (ok)."""
    judge_least(len(payload), _DONE.size, "done payload")
    rank, count, wait_rows_ns, forward_ns, wait_send_ns = _DONE.unpack_from(payload)
    judge_size(len(payload), _DONE.size + _ACK.size * count, "done payload")
    words = list(_ACK.iter_unpack(memoryview(payload)[_DONE.size :])) if count else []
    _judge_flags([ok for _, ok in words], "acknowledgement", _DONE.size + 16, _ACK.size)
    acks = tuple([CacheAck(key, bool(ok)) for key, ok in words])
    return Done(rank, acks, wait_rows_ns, forward_ns, wait_send_ns)


class FateKind(IntEnum):
    """How a ring ends: by a failure, by an orderly stop, or, announced by a drain, some time later."""

    FAIL = 1
    STOP = 2
    DRAIN = 3

    @property
    def label(self) -> str:
        """Lower-case name, as wire.md 8 writes it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of the ring, the error behind it, the rank it began at, and a text for people."""

    what: FateKind
    error: ErrorCode
    rank: int
    text: str = ""

    def encode(self) -> bytes:
        """The payload; the text is cut to 512 bytes at a character's border. Raises ProtocolError `bad_value`."""
        text = self.text.encode(errors="replace")
        if len(text) > FATE_TEXT_BYTES:
            text = text[:FATE_TEXT_BYTES].decode(errors="ignore").encode()
        try:
            return _FATE.pack(self.what, 0, self.error, self.rank) + text
        except struct.error as error:
            raise ProtocolError(ErrorCode.BAD_VALUE, f"rank {self.rank}: {error}") from None


def decode_fate(payload: Payload) -> Fate:
    """Decode a fate payload.

    Raises ProtocolError `truncated`, `reserved_not_zero`, `too_long`, `bad_value` (what, error) or `bad_utf8`.
    """
    judge_least(len(payload), _FATE.size, "fate payload")
    what, spare, number, rank = _FATE.unpack_from(payload)
    if spare:
        raise reserved("the fate", spare, 1)
    if len(payload) > _FATE.size + FATE_TEXT_BYTES:
        judge_size(len(payload), _FATE.size + FATE_TEXT_BYTES, "fate payload")
    if not 1 <= what <= 3:
        raise ProtocolError(ErrorCode.BAD_VALUE, f"fate is {what}, expected 1 to 3")
    error = _ERRORS.get(number)
    if error is None:
        raise ProtocolError(ErrorCode.BAD_VALUE, f"error number of the fate is {number}, which names no error", 2)
    return Fate(FateKind(what), error, rank, decode_text(payload, _FATE.size, "text of the fate"))


def decode_text(payload: Payload, at: int, what: str) -> str:
    """The UTF-8 text from `at` to the payload's end. Raises ProtocolError `bad_utf8`."""
    raw = bytes(payload[at:])
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(ErrorCode.BAD_UTF8, f"{what} is not UTF-8: {error.reason}", at + error.start) from None
