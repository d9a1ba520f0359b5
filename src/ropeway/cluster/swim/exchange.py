"""Push-pull: two members compare what they hold by short checks, page by page, and send each other what differs.

Stateless and idempotent: a lost page or answer is made up for by the next exchange. Coming in is the first one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from zlib import crc32

from ropeway.cluster.names import Held, Names
from ropeway.cluster.swim.gossip import Subject
from ropeway.cluster.swim.packets import (
    HEADER_BYTES,
    LINE_BYTES,
    PACKET_BYTES,
    PAGE_ENTRIES,
    RECORDS_MOST,
    U64_MAX,
    Body,
    Pull,
    Sync,
    Told,
)
from ropeway.cluster.swim.records import MemberRecord, NameRecord, clip_age, encode_record
from ropeway.cluster.swim.roster import Roster
from ropeway.cluster.swim.values import Member

ANSWER_PACKETS: Final = 16
"""Most packets of records in answer to one page or pull, and most that one member draws from us a second."""

SendRecords = Callable[[bytes, Body, list[bytes]], None]


@dataclass(frozen=True, slots=True)
class _Line:
    check: int
    subject: Subject


class Exchange:
    """The table of one member, by key, and what it answers."""

    def __init__(self, roster: Roster, names: Names, send: SendRecords) -> None:
        self._roster = roster
        self._names = names
        self._send = send
        self._table: dict[int, _Line] = {}
        self._drawn: dict[bytes, tuple[float, float]] = {}

    def begin(self, to: bytes, joining: list[bytes] | None = None) -> None:
        """Show `to` what we hold; with our own record where we come in."""
        lines = sorted((key, line.check) for key, line in self._lines().items())
        records = joining or []
        most = PAGE_ENTRIES - math.ceil(sum(map(len, records)) / LINE_BYTES)
        for page in pages(lines, most, join=bool(records)):
            self._send(to, page, records)

    def asked(self, now: float, sender: bytes, page: Sync) -> None:
        """Another member shows a page of what it holds: send it what it lacks, ask for what we lack."""
        mine = {key: line.check for key, line in self._lines().items() if page.low <= key <= page.high}
        theirs = dict(page.lines)
        lack = sorted(key for key, check in theirs.items() if mine.get(key) != check)
        if lack:
            self._send(sender, Pull(tuple(lack)), [])
        self._tell(now, sender, [key for key, check in mine.items() if theirs.get(key) != check])

    def pulled(self, now: float, sender: bytes, pull: Pull) -> None:
        """Another member asks for records."""
        self._tell(now, sender, pull.keys)

    def pull_member(self, to: bytes) -> None:
        """Ask a stranger for its own record."""
        self._send(to, Pull((key_of(to),)), [])

    def _lines(self) -> dict[int, _Line]:
        """The table, with all changes since the last call, in an order that no hash decides."""
        for id_ in sorted(self._roster.changed):
            member = self._roster.get(id_)
            self._set(id_, None if member is None else _check_member(member))
        for name in sorted(self._names.changed):
            held = self._names.get(name)
            self._set(name, None if held is None else _check_name(held))
        self._roster.changed.clear()
        self._names.changed.clear()
        return self._table

    def _set(self, subject: Subject, check: int | None) -> None:
        if check is None:
            self._table.pop(key_of(subject), None)
        else:
            self._table[key_of(subject)] = _Line(check, subject)

    def _tell(self, now: float, to: bytes, keys: Iterable[int]) -> None:
        """Send records, members first, as many packets as this member may draw from us now."""
        table = self._lines()
        subjects = [table[key].subject for key in keys if key in table]
        subjects.sort(key=lambda subject: isinstance(subject, str))
        if not subjects:
            return
        batches = pack((self._record(now, subject) for subject in subjects), self._allowed(now, to))
        self._take(now, to, len(batches))
        told = 0
        for index, batch in enumerate(batches, 1):
            told += len(batch)
            self._send(to, Told(more=index == len(batches) and told < len(subjects)), batch)

    def _record(self, now: float, subject: Subject) -> bytes:
        if isinstance(subject, bytes):
            member = self._roster.get(subject)
            assert member is not None
            age_s = 0 if member.state.living else clip_age(now - member.since)
            record = MemberRecord(member.statement, member.state, member.incarnation, member.by, age_s)
            return encode_record(record)
        held = self._names.get(subject)
        assert held is not None
        return encode_record(NameRecord(held.entry, 0 if held.entry.live else clip_age(now - held.since)))

    def _allowed(self, now: float, to: bytes) -> int:
        left, at = self._drawn.get(to, (float(ANSWER_PACKETS), now))
        return int(min(float(ANSWER_PACKETS), left + (now - at) * ANSWER_PACKETS))

    def _take(self, now: float, to: bytes, packets: int) -> None:
        left, at = self._drawn.get(to, (float(ANSWER_PACKETS), now))
        if to not in self._drawn and len(self._drawn) > 2 * self._roster.living + 64:
            self._drawn.clear()
        self._drawn[to] = (min(float(ANSWER_PACKETS), left + (now - at) * ANSWER_PACKETS) - packets, now)


def key_of(subject: Subject) -> int:
    """A subject's key in the tables: 64 bits of BLAKE2b over `m` and a member's id, or `n` and a name."""
    said = b"m" + subject if isinstance(subject, bytes) else b"n" + subject.encode()
    return int.from_bytes(blake2b(said, digest_size=8).digest(), "little")


def pages(table: list[tuple[int, int]], most: int, *, join: bool) -> list[Sync]:
    """A sorted table of (key, check) as pages of at most `most` lines that together cover all keys."""
    cuts = range(0, max(len(table), 1), most)
    lows = [0 if at == 0 else table[at][0] for at in cuts]
    highs = [low - 1 for low in lows[1:]] + [U64_MAX]
    chunks = [tuple(table[at : at + most]) for at in cuts]
    return [Sync(join, low, high, lines) for low, high, lines in zip(lows, highs, chunks, strict=True)]


def pack(records: Iterable[bytes], most: int) -> list[list[bytes]]:
    """Records in their order, in as few packets as that allows; what does not fit into `most` of them is left out."""
    batches: list[list[bytes]] = []
    left = 0
    for raw in records:
        if not batches or len(raw) > left or len(batches[-1]) == RECORDS_MOST:
            if len(batches) >= most:
                break
            batches.append([])
            left = PACKET_BYTES - HEADER_BYTES
        batches[-1].append(raw)
        left -= len(raw)
    return batches


def _check_member(member: Member) -> int:
    said = f"{member.start} {member.incarnation} {member.state:d} {member.statement.incarnation}"
    return crc32(said.encode())


def _check_name(held: Held) -> int:
    entry = held.entry
    return crc32(f"{entry.time} {entry.generation} {entry.live:d} ".encode() + entry.node)
