"""Packets: a header of 20 bytes, a body by kind, and records to the end (docs/membership.md, Packets).

Judges form only: what fits this cluster and this sender is for the core.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ropeway.cluster.swim.errors import Fault, PacketError
from ropeway.cluster.swim.reader import Reader
from ropeway.cluster.swim.records import Record, decode_record
from ropeway.cluster.swim.values import ID_BYTES

MAGIC: Final = b"RSWM"
VERSION: Final = 1
PACKET_BYTES: Final = 1_200
HEADER_BYTES: Final = 20
CLUSTER_BYTES: Final = 8
U64_MAX: Final = (1 << 64) - 1
RECORDS_MOST: Final = 255
LINE_BYTES: Final = 12
PAGE_ENTRIES: Final = (PACKET_BYTES - HEADER_BYTES - 18) // LINE_BYTES
PULL_KEYS: Final = (PACKET_BYTES - HEADER_BYTES - 2) // 8

_HEADER: Final = struct.Struct("<4sBBBB8sI")
_PAGE: Final = struct.Struct("<QQH")
_LINE: Final = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there? Answered by an ack of the same number."""

    seq: int


@dataclass(frozen=True, slots=True)
class Ack:
    """I am; or, from a member that was asked to look: it is."""

    seq: int


@dataclass(frozen=True, slots=True)
class PingReq:
    """Please ping `target`, and answer with an ack, or with a nack when it does not answer in time."""

    seq: int
    target: bytes


@dataclass(frozen=True, slots=True)
class Nack:
    """I am here, but the member that you asked about has not answered me."""

    seq: int


@dataclass(frozen=True, slots=True)
class Gossip:
    """Nothing but records."""


@dataclass(frozen=True, slots=True)
class Sync:
    """What I hold of keys low..high, both included, as (key, check) rising by key: tell me what differs.

    `join`: I come in; the one record is my own.
    """

    join: bool
    low: int
    high: int
    lines: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """Send me your records of these keys, which rise."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Records that were asked for. `more`: they did not all fit; sync again."""

    more: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """You cannot join, and why."""

    fault: Fault


Body = Ping | Ack | PingReq | Nack | Gossip | Sync | Pull | Told | Refuse


@dataclass(frozen=True, slots=True)
class Packet:
    """One datagram. `cluster` has 8 bytes."""

    cluster: bytes
    body: Body
    records: tuple[Record, ...] = ()


def encode_body(cluster: bytes, body: Body) -> bytes:
    """A packet without records; `with_records` puts them behind it."""
    kind, flag, seq, rest = 5, False, 0, b""
    match body:
        case Ping(seq):
            kind = 1
        case Ack(seq):
            kind = 2
        case PingReq(seq, rest):
            kind = 3
        case Nack(seq):
            kind = 4
        case Gossip():
            kind = 5
        case Sync(flag, low, high, lines):
            kind = 6
            rest = _PAGE.pack(low, high, len(lines)) + b"".join(_LINE.pack(*line) for line in lines)
        case Pull(keys):
            kind = 7
            rest = struct.pack(f"<H{len(keys)}Q", len(keys), *keys)
        case Told(flag):
            kind = 8
        case Refuse(fault):
            kind = 9
            rest = bytes((fault,))
    return _HEADER.pack(MAGIC, VERSION, kind, flag, 0, cluster, seq) + rest


def with_records(head: bytes, records: list[bytes]) -> bytes:
    """A packet with encoded records behind its body."""
    return b"".join((head[:7], bytes((len(records),)), head[8:], *records))


def decode_packet(raw: bytes) -> Packet:
    """Decode a datagram, judging size, magic, version, kind, flags, number, body, records and end, in this order.

    Raises PacketError.
    """
    if len(raw) > PACKET_BYTES:
        raise PacketError(Fault.TOO_LONG, f"a packet of {len(raw)} bytes, at most {PACKET_BYTES}")
    if len(raw) < HEADER_BYTES:
        raise PacketError(Fault.TRUNCATED, f"a packet of {len(raw)} bytes, at least {HEADER_BYTES}", len(raw))
    magic, version, kind, flags, count, cluster, seq = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise PacketError(Fault.BAD_MAGIC, f"magic is {magic.hex()}, expected {MAGIC.hex()}")
    if version != VERSION:
        raise PacketError(Fault.BAD_VERSION, f"version is {version}, expected {VERSION}", 4)
    if not 1 <= kind <= 9:
        raise PacketError(Fault.BAD_KIND, f"kind is {kind}, expected 1 to 9", 5)
    if flags > (kind in (6, 8)):
        raise PacketError(Fault.BAD_FLAGS, f"flags of kind {kind} are {flags:#04x}", 6)
    if seq and kind > 4:
        raise PacketError(Fault.RESERVED_NOT_ZERO, f"number of kind {kind} is {seq}, expected 0", 16)
    reader = Reader(raw)
    reader.at = HEADER_BYTES
    body = _decode_body(reader, kind, flags == 1, seq)
    records = tuple(decode_record(reader) for _ in range(count))
    if reader.at != len(raw):
        raise PacketError(Fault.TRAILING, f"{len(raw) - reader.at} bytes behind the last record", reader.at)
    return Packet(cluster, body, records)


def _decode_body(reader: Reader, kind: int, flag: bool, seq: int) -> Body:
    match kind:
        case 1:
            return Ping(seq)
        case 2:
            return Ack(seq)
        case 3:
            return PingReq(seq, reader.take(ID_BYTES, "target"))
        case 4:
            return Nack(seq)
        case 5:
            return Gossip()
        case 6:
            return _decode_sync(reader, flag)
        case 7:
            count = reader.number(2, "count of keys", PULL_KEYS)
            at = reader.at
            keys: tuple[int, ...] = struct.unpack(f"<{count}Q", reader.take(8 * count, "keys"))
            _judge_rising(keys, 0, U64_MAX, at)
            return Pull(keys)
        case 8:
            return Told(flag)
    number = reader.number(1, "fault")
    if number not in _FAULTS:
        raise reader.fail(Fault.BAD_VALUE, f"fault is {number}", 1)
    return Refuse(Fault(number))


def _decode_sync(reader: Reader, join: bool) -> Sync:
    low = reader.number(8, "low")
    high = reader.number(8, "high")
    count = reader.number(2, "count of lines", PAGE_ENTRIES)
    at = reader.at
    lines = tuple(_LINE.iter_unpack(reader.take(12 * count, "lines")))
    if low > high:
        raise PacketError(Fault.BAD_VALUE, f"low {low} is above high {high}", at - 18)
    _judge_rising(tuple(key for key, _ in lines), low, high, at)
    return Sync(join, low, high, lines)


def _judge_rising(keys: tuple[int, ...], low: int, high: int, at: int) -> None:
    if keys and (keys[0] < low or keys[-1] > high or any(a >= b for a, b in pairwise(keys))):
        raise PacketError(Fault.BAD_VALUE, "keys do not rise strictly inside their range", at)


_FAULTS: Final = frozenset(Fault)
