"""How nodes give each other bytes of checkpoints: one request at a time over any stream of bytes. Pure.

Both sides begin with `PREFACE`. Then frames: u32 length of the payload, u8 kind, payload; integers little-endian.

| kind | from | payload |
|---|---|---|
| 1 ask | asker | the file's key, 32 bytes |
| 2 have | giver | u64 bytes of the file, u16 and tag, u16 and name, u32 count, u64 start and end of each range held |
| 3 read | asker | key, u64 start, u64 bytes |
| 4 data | giver | at most 1 MiB of the range, in order |
| 5 end | giver | SHA-256 of the range, 32 bytes; after the data of a read, or by itself after a digest |
| 6 digest | asker | key, u64 start, u64 bytes |
| 7 refused | giver | u8 lasting (0 or 1), then text of at most 512 bytes |

Nobody is proved here: the stream belongs to a connection whose other end has proved the cluster's key.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ropeway.checkpoints.fetch.ranges import Ranges, covers, union
from ropeway.checkpoints.fetch.source import MAX_FILE_BYTES, FileFacts

PREFACE: Final = b"TFWX\x01\x00\x00\x00"
KEY_BYTES: Final = 32
DATA_BYTES: Final = 1 << 20
READ_BYTES: Final = 1 << 30
"""Most bytes of one read or digest."""
MAX_RANGES: Final = 1 << 16
MAX_TEXT_BYTES: Final = 512
_HEAD = struct.Struct("<IB")
_PLACE = struct.Struct("<QQ")


class Kind(IntEnum):
    """What a frame is."""

    ASK = 1
    HAVE = 2
    READ = 3
    DATA = 4
    END = 5
    DIGEST = 6
    REFUSED = 7


_LIMITS: Final = {
    Kind.ASK: KEY_BYTES,
    Kind.HAVE: 8 + 2 + 2 + 2 * MAX_TEXT_BYTES + 4 + 16 * MAX_RANGES,
    Kind.READ: KEY_BYTES + 16,
    Kind.DATA: DATA_BYTES,
    Kind.END: 32,
    Kind.DIGEST: KEY_BYTES + 16,
    Kind.REFUSED: 1 + MAX_TEXT_BYTES,
}


class ExchangeError(Exception):
    """The other side broke the rules of the exchange, which ends it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What do you hold of this file?"""

    key: str


@dataclass(frozen=True, slots=True)
class Read:
    """Give these bytes (`digest_only`: only their SHA-256)."""

    key: str
    start: int
    nbytes: int
    digest_only: bool = False


@dataclass(frozen=True, slots=True)
class Have:
    """The file, and what of it is held."""

    facts: FileFacts
    held: Ranges


@dataclass(frozen=True, slots=True)
class Data:
    """The next bytes of a read."""

    view: memoryview


@dataclass(frozen=True, slots=True)
class End:
    """A read or a digest is done: SHA-256 hex of the range, which for a read agreed with what came."""

    sha256: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The giver cannot; `lasting`: nor later."""

    text: str
    lasting: bool


Request = Ask | Read
Answer = Have | Data | End | Refused


class Frames:
    """Bytes to frames, whatever the pieces in which they come. Raises ExchangeError."""

    __slots__ = ("_buffer", "_greeted", "_kinds")

    def __init__(self, kinds: frozenset[Kind]) -> None:
        self._kinds = kinds
        self._buffer = bytearray()
        self._greeted = False

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[Kind, bytes]]:
        """The frames that are complete with `data`."""
        self._buffer += data
        if not self._greeted:
            if not PREFACE.startswith(bytes(self._buffer[: len(PREFACE)])):
                raise ExchangeError("the other side does not speak this version of the exchange")
            if len(self._buffer) < len(PREFACE):
                return
            del self._buffer[: len(PREFACE)]
            self._greeted = True
        while len(self._buffer) >= _HEAD.size:
            length, number = _HEAD.unpack_from(self._buffer)
            if number not in self._kinds:
                raise ExchangeError(f"a frame of the kind {number} has no place here")
            kind = Kind(number)
            if length > _LIMITS[kind]:
                raise ExchangeError(f"a frame of {length} bytes; {kind.name.lower()} has at most {_LIMITS[kind]}")
            if len(self._buffer) < _HEAD.size + length:
                return
            payload = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
            del self._buffer[: _HEAD.size + length]
            yield kind, payload


def _frame(kind: Kind, *parts: bytes | memoryview) -> bytes:
    return b"".join((_HEAD.pack(sum(len(part) for part in parts), kind), *parts))


def _place(key: str, start: int, nbytes: int) -> bytes:
    return bytes.fromhex(key) + _PLACE.pack(start, nbytes)


class Asker:
    """The side that wants bytes: one request, then its answers until End, Have or Refused."""

    __slots__ = ("_digest", "_frames", "_left", "_waits")

    def __init__(self) -> None:
        self._frames = Frames(frozenset({Kind.HAVE, Kind.DATA, Kind.END, Kind.REFUSED}))
        self._waits: Kind | None = None
        self._left = 0
        self._digest = hashlib.sha256()

    def request(self, request: Request) -> bytes:
        """The request's bytes. `PREFACE` goes before the first."""
        assert self._waits is None, "one request at a time"
        if isinstance(request, Ask):
            self._waits = Kind.HAVE
            return _frame(Kind.ASK, bytes.fromhex(request.key))
        assert 0 < request.nbytes <= READ_BYTES
        self._waits = Kind.END
        self._left = 0 if request.digest_only else request.nbytes
        self._digest = hashlib.sha256()
        kind = Kind.DIGEST if request.digest_only else Kind.READ
        if request.digest_only:
            self._waits = Kind.DIGEST
        return _frame(kind, _place(request.key, request.start, request.nbytes))

    def feed(self, data: bytes | memoryview) -> Iterator[Answer]:
        """The answers that are complete with `data`. Raises ExchangeError."""
        for kind, payload in self._frames.feed(data):
            yield self._answer(kind, payload)

    def _answer(self, kind: Kind, payload: bytes) -> Answer:
        waits = self._waits
        if kind is Kind.DATA and waits is Kind.END and 0 < len(payload) <= self._left:
            self._left -= len(payload)
            self._digest.update(payload)
            return Data(memoryview(payload))
        if waits is None or (self._left and kind is not Kind.REFUSED) or kind is Kind.DATA:
            raise ExchangeError(f"{kind.name.lower()} came where it has no place")
        self._waits = None
        if kind is Kind.REFUSED and payload and payload[0] < 2:
            return Refused(payload[1:].decode(errors="replace"), bool(payload[0]))
        if kind is Kind.HAVE and waits is Kind.HAVE:
            return _decode_have(payload)
        if kind is Kind.END and waits is not Kind.HAVE and len(payload) == 32:
            if waits is Kind.END and payload != self._digest.digest():
                raise ExchangeError("the bytes that came are not those that were sent: their SHA-256 differs")
            return End(payload.hex())
        raise ExchangeError(f"{kind.name.lower()} came where it has no place")


class Giver:
    """The side that has bytes: requests in, answers out."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        self._frames = Frames(frozenset({Kind.ASK, Kind.READ, Kind.DIGEST}))

    def feed(self, data: bytes | memoryview) -> Iterator[Request]:
        """The requests that are complete with `data`. Raises ExchangeError."""
        for kind, payload in self._frames.feed(data):
            if len(payload) != _LIMITS[kind]:
                raise ExchangeError(f"a request of {len(payload)} bytes")
            key = payload[:KEY_BYTES].hex()
            if kind is Kind.ASK:
                yield Ask(key)
                continue
            start, nbytes = _PLACE.unpack_from(payload, KEY_BYTES)
            if not 0 < nbytes <= READ_BYTES or start > MAX_FILE_BYTES:
                raise ExchangeError(f"a request for {nbytes} bytes from byte {start}")
            yield Read(key, start, nbytes, kind is Kind.DIGEST)

    @staticmethod
    def answer(answer: Answer) -> bytes:
        """The answer's bytes. `PREFACE` goes before the first."""
        match answer:
            case Have(facts, held):
                return _frame(Kind.HAVE, _encode_have(facts, held))
            case Data(view):
                assert 0 < len(view) <= DATA_BYTES
                return _frame(Kind.DATA, view)
            case End(sha256):
                return _frame(Kind.END, bytes.fromhex(sha256))
            case Refused(text, lasting):
                return _frame(Kind.REFUSED, bytes([lasting]), text.encode()[:MAX_TEXT_BYTES])


def _encode_have(facts: FileFacts, held: Ranges) -> bytes:
    parts = [struct.pack("<Q", facts.nbytes)]
    for text in (facts.tag, facts.name):
        raw = text.encode()
        assert len(raw) <= MAX_TEXT_BYTES
        parts += [struct.pack("<H", len(raw)), raw]
    shown = held[:MAX_RANGES]
    parts.append(struct.pack("<I", len(shown)))
    parts += [_PLACE.pack(*pair) for pair in shown]
    return b"".join(parts)


def _decode_have(payload: bytes) -> Have:
    try:
        (nbytes,) = struct.unpack_from("<Q", payload)
        at, texts = 8, []
        for _ in range(2):
            (length,) = struct.unpack_from("<H", payload, at)
            if length > MAX_TEXT_BYTES or at + 2 + length > len(payload):
                raise ExchangeError("a text of have is too long")
            texts.append(payload[at + 2 : at + 2 + length].decode())
            at += 2 + length
        (count,) = struct.unpack_from("<I", payload, at)
        if len(payload) != at + 4 + 16 * count:
            raise ExchangeError("have has another length than its count says")
        pairs = [_PLACE.unpack_from(payload, at + 4 + 16 * index) for index in range(count)]
    except (struct.error, UnicodeDecodeError):
        raise ExchangeError("have cannot be read") from None
    held = union((start, end) for start, end in pairs)
    if not 0 < nbytes <= MAX_FILE_BYTES or any(not covers(((0, nbytes),), *pair) for pair in pairs):
        raise ExchangeError("have names bytes outside its file")
    return Have(FileFacts(texts[1], nbytes, texts[0]), held)
