"""Records: the pieces of news inside packets, to bytes and back (docs/membership.md, Records).

Canonical: every record has one encoding, and what decodes encodes to the same bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ropeway.cluster.names import NAME_BYTES, VALUE_BYTES, Entry
from ropeway.cluster.swim.errors import Fault, PacketError
from ropeway.cluster.swim.reader import Reader
from ropeway.cluster.swim.values import ADDRESS_BYTES, LABEL_BYTES, U32_MAX, Claim, State, Statement

MEMBER: Final = 1
CLAIM: Final = 2
NAME: Final = 3

_STATEMENT_LABEL: Final = b"ropeway member statement 1\0"
_NAME_LABEL: Final = b"ropeway name entry 1\0"
_STAMPS: Final = struct.Struct("<QIII")
_LIFE: Final = struct.Struct("<QI")
_TIMES: Final = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member in full: its statement, what is believed of it, by whose word, and for how long (dead and left)."""

    statement: Statement
    state: State
    incarnation: int
    by: bytes
    age_s: int = 0


@dataclass(frozen=True, slots=True)
class NameRecord:
    """An entry of the names, and its age if it is a tombstone."""

    entry: Entry
    age_s: int = 0


Record = MemberRecord | Claim | NameRecord


def stated(statement: Statement) -> MemberRecord:
    """The record of a member that is as it says."""
    return MemberRecord(statement, statement.state, statement.incarnation, statement.member)


def statement_said(cluster: bytes, statement: Statement) -> bytes:
    """The bytes under a statement's seal."""
    label = statement.label.encode()
    life = _LIFE.pack(statement.start, statement.incarnation)
    tail = bytes((statement.left, len(label))) + label + bytes((len(statement.address),)) + statement.address
    return _STATEMENT_LABEL + cluster + statement.member + life + tail


def entry_said(cluster: bytes, entry: Entry) -> bytes:
    """The bytes under the seal of a name's entry."""
    name = entry.name.encode()
    tail = bytes((entry.live, len(name))) + name + bytes((len(entry.value),)) + entry.value
    return _NAME_LABEL + cluster + entry.node + _TIMES.pack(entry.time, entry.generation) + tail


def encode_record(record: Record) -> bytes:
    """The bytes of one record; at most 471."""
    match record:
        case MemberRecord(statement, state, incarnation, by, age_s):
            head = bytes((MEMBER, state)) + statement.member
            head += _STAMPS.pack(statement.start, incarnation, statement.incarnation, age_s)
            accuser = b"" if by == statement.member else by
            return head + accuser + _blob(statement.label.encode()) + _blob(statement.address) + _blob(statement.seal)
        case Claim(member, start, incarnation, state, by):
            return bytes((CLAIM, state)) + member + _LIFE.pack(start, incarnation) + by
        case NameRecord(entry, age_s):
            head = bytes((NAME, entry.live)) + entry.node + _TIMES.pack(entry.time, entry.generation)
            head += age_s.to_bytes(4, "little")
            return head + _blob(entry.name.encode()) + _blob(entry.value) + _blob(entry.seal)


def decode_record(reader: Reader) -> Record:
    """Read one record. Raises PacketError `truncated`, `too_long`, `bad_value`, `bad_utf8` or `reserved_not_zero`."""
    kind = reader.number(1, "type of a record")
    match kind:
        case 1:
            return _decode_member(reader)
        case 2:
            return _decode_claim(reader)
        case 3:
            return _decode_name(reader)
    raise reader.fail(Fault.BAD_VALUE, f"type of a record is {kind}, expected 1 to 3", 1)


def _decode_member(reader: Reader) -> MemberRecord:
    state = State(reader.number(1, "state of a member", max(State)))
    member = reader.id("member")
    start = reader.time("start")
    at = reader.at
    incarnation = reader.number(4, "incarnation")
    own = reader.number(4, "stated incarnation")
    age_s = reader.number(4, "age")
    if incarnation != own and state in (State.ALIVE, State.LEFT):
        raise PacketError(Fault.BAD_VALUE, f"{state.label} at incarnation {incarnation}, stated at {own}", at)
    if incarnation < own:
        raise PacketError(Fault.BAD_VALUE, f"{state.label} at incarnation {incarnation}, below the stated {own}", at)
    if age_s and state.living:
        raise PacketError(Fault.RESERVED_NOT_ZERO, f"age of a member that is {state.label} is {age_s}", at + 8)
    by = _accuser(reader, member) if state in (State.SUSPECT, State.DEAD) else member
    label = reader.text(LABEL_BYTES, "label")
    address = reader.blob(ADDRESS_BYTES, "address")
    statement = Statement(member, start, own, label, address, state is State.LEFT, reader.seal())
    return MemberRecord(statement, state, incarnation, by, age_s)


def _decode_claim(reader: Reader) -> Claim:
    number = reader.number(1, "state of a claim")
    if number not in (State.SUSPECT, State.DEAD):
        raise reader.fail(Fault.BAD_VALUE, f"state of a claim is {number}, expected 1 or 2", 1)
    member = reader.id("member")
    start = reader.time("start")
    incarnation = reader.number(4, "incarnation")
    return Claim(member, start, incarnation, State(number), _accuser(reader, member))


def _decode_name(reader: Reader) -> NameRecord:
    live = reader.number(1, "live", 1) == 1
    node = reader.id("node")
    time = reader.time("time")
    generation = reader.time("generation")
    age_s = reader.number(4, "age")
    if age_s and live:
        raise reader.fail(Fault.RESERVED_NOT_ZERO, f"age of a registered name is {age_s}", 4)
    at = reader.at
    name = reader.text(NAME_BYTES, "name")
    if not name:
        raise PacketError(Fault.BAD_VALUE, "a name of no bytes", at)
    value = reader.blob(VALUE_BYTES, "value")
    return NameRecord(Entry(name, time, generation, node, live, value, reader.seal()), age_s)


def _accuser(reader: Reader, member: bytes) -> bytes:
    by = reader.id("accuser")
    if by == member:
        raise reader.fail(Fault.BAD_VALUE, "a member accuses itself", len(by))
    return by


def _blob(raw: bytes) -> bytes:
    return bytes((len(raw),)) + raw


def clip_age(age_s: float) -> int:
    """An age as a record carries it: whole seconds, 32 bits."""
    return min(max(int(age_s), 0), U32_MAX)
