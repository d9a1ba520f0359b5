"""Push-pull: two members compare what they hold by short checks, page by page, and send each other what differs.

Stateless and idempotent: a lost page or answer is made up for by the next exchange. Coming in is the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final
from zlib import crc32

from ropeway.cluster.names import Held, Names
from ropeway.cluster.swim.gossip import Subject
from ropeway.cluster.swim.packets import PACKET_BYTES, PAGE_ENTRIES, RECORDS_MOST, U64_MAX, Body, Pull, Sync, Told
from ropeway.cluster.swim.records import MemberRecord, NameRecord, clip_age, encode_record
from ropeway.cluster.swim.roster import Roster
from ropeway.cluster.swim.values import Member

ANSWER_PACKETS: Final = 16
"""Most packets of records in answer to one page or pull, and most that one member draws from us a second."""

SendRecords = Callable[[bytes, Body, list[bytes]], None]


class Exchange:
    """The tables of one member, and what it answers."""

    def __init__(self, roster: Roster, names: Names, send: SendRecords) -> None:
        self._roster = roster
        self._names = names
        self._send = send
        self._keys: dict[Subject, int] = {}
        self._table: dict[int, int] = {}
        self._version = (-1, -1)
        self._drawn: dict[bytes, tuple[float, float]] = {}

    def begin(self, to: bytes, joining: list[bytes] | None = None) -> None:
        """Show `to` what we hold; with our own record where we come in."""
        for page in pages(sorted(self._checks().items()), join=joining is not None):
            self._send(to, page, joining or [])

    def asked(self, now: float, sender: bytes, page: Sync) -> None:
        """Another member shows a page of what it holds: send it what it lacks, ask for what we lack."""
        mine = {key: check for key, check in self._checks().items() if page.low <= key <= page.high}
        theirs = dict(page.lines)
        lack = sorted(key for key, check in theirs.items() if mine.get(key) != check)
        if lack:
            self._send(sender, Pull(tuple(lack)), [])
        self._tell(now, sender, {key for key, check in mine.items() if theirs.get(key) != check})

    def pulled(self, now: float, sender: bytes, pull: Pull) -> None:
        """Another member asks for records."""
        self._tell(now, sender, set(pull.keys))

    def pull_member(self, to: bytes) -> None:
        """Ask a stranger for its own record."""
        self._send(to, Pull((self._key(to),)), [])

    def _checks(self) -> dict[int, int]:
        version = self._roster.version, self._names.version
        if version == self._version:
            return self._table
        table = {self._key(member.id): _check_member(member) for member in self._roster.all()}
        table.update((self._key(held.entry.name), _check_name(held)) for held in self._names.held())
        self._table, self._version = table, version
        if len(self._keys) > 4 * len(table) + 64:
            self._keys.clear()
        return table

    def _key(self, subject: Subject) -> int:
        key = self._keys.get(subject)
        if key is None:
            key = self._keys[subject] = key_of(subject)
        return key

    def _tell(self, now: float, to: bytes, keys: set[int]) -> None:
        """Send records, members first, as many as this member may draw from us now."""
        wanted = [encode_record(_member_record(now, m)) for m in self._roster.all() if self._key(m.id) in keys]
        wanted += [encode_record(_name_record(now, h)) for h in self._names.held() if self._key(h.entry.name) in keys]
        if not wanted:
            return
        batches = pack(wanted, PACKET_BYTES - 20)
        allowed = self._allowed(now, to, len(batches))
        for index, batch in enumerate(batches[:allowed], 1):
            self._send(to, Told(more=index == allowed < len(batches)), batch)

    def _allowed(self, now: float, to: bytes, wanted: int) -> int:
        left, at = self._drawn.get(to, (float(ANSWER_PACKETS), now))
        left = min(float(ANSWER_PACKETS), left + (now - at) * ANSWER_PACKETS)
        allowed = min(wanted, int(left))
        if to not in self._drawn and len(self._drawn) > 2 * self._roster.living + 64:
            self._drawn.clear()
        self._drawn[to] = (left - allowed, now)
        return allowed


def key_of(subject: Subject) -> int:
    """A subject's key in the tables: 64 bits of BLAKE2b over `m` and a member's id, or `n` and a name."""
    said = b"m" + subject if isinstance(subject, bytes) else b"n" + subject.encode()
    return int.from_bytes(blake2b(said, digest_size=8).digest(), "little")


def pages(table: list[tuple[int, int]], *, join: bool) -> list[Sync]:
    """A sorted table of (key, check) as pages that together cover all keys."""
    cuts = range(0, max(len(table), 1), PAGE_ENTRIES)
    lows = [0 if at == 0 else table[at][0] for at in cuts]
    highs = [low - 1 for low in lows[1:]] + [U64_MAX]
    chunks = [tuple(table[at : at + PAGE_ENTRIES]) for at in cuts]
    return [Sync(join, low, high, lines) for low, high, lines in zip(lows, highs, chunks, strict=True)]


def pack(records: Iterable[bytes], room: int) -> list[list[bytes]]:
    """Records in their order, in as few packets as that allows."""
    batches: list[list[bytes]] = []
    left = 0
    for raw in records:
        if not batches or len(raw) > left or len(batches[-1]) == RECORDS_MOST:
            batches.append([])
            left = room
        batches[-1].append(raw)
        left -= len(raw)
    return batches


def _member_record(now: float, member: Member) -> MemberRecord:
    age_s = 0 if member.state.living else clip_age(now - member.since)
    return MemberRecord(member.statement, member.state, member.incarnation, member.by, age_s)


def _name_record(now: float, held: Held) -> NameRecord:
    return NameRecord(held.entry, 0 if held.entry.live else clip_age(now - held.since))


def _check_member(member: Member) -> int:
    said = f"{member.start} {member.incarnation} {member.state:d} {member.statement.incarnation}"
    return crc32(said.encode())


def _check_name(held: Held) -> int:
    entry = held.entry
    return crc32(f"{entry.time} {entry.generation} {entry.live:d} ".encode() + entry.node)
