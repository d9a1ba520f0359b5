"""The values that the good golden files hold."""

from __future__ import annotations

from ropeway.cluster.names import Entry
from ropeway.cluster.swim.errors import Fault
from ropeway.cluster.swim.packets import Ack, Body, Gossip, Nack, Packet, Ping, PingReq, Pull, Refuse, Sync, Told
from ropeway.cluster.swim.records import MemberRecord, NameRecord, Record
from ropeway.cluster.swim.values import Claim, State, Statement

CLUSTER = b"golden 1"
A, B, C = (bytes([number]) * 32 for number in (0xA1, 0xB2, 0xC3))
START = 1_790_000_000_000
SEAL = bytes(range(64))
U64_MAX = (1 << 64) - 1
LINES = ((5, 0x11223344), (9, 0x55667788))


def said(incarnation: int = 3, *, left: bool = False, seal: bytes = b"") -> Statement:
    return Statement(A, START, incarnation, "attic", b"\x01addr", left, seal)


def alive(incarnation: int = 3, seal: bytes = b"") -> MemberRecord:
    return MemberRecord(said(incarnation, seal=seal), State.ALIVE, incarnation, A)


def claim(state: State = State.SUSPECT, by: bytes = B) -> Claim:
    return Claim(A, START, 3, state, by)


def name(seal: bytes = b"") -> NameRecord:
    return NameRecord(Entry("pp-entry", 41, START, A, True, b"ring 7", seal))


def packet(body: Body, *records: Record) -> Packet:
    return Packet(CLUSTER, body, records)


GOOD: dict[str, Packet] = {
    "ping": packet(Ping(7)),
    "ack-news": packet(Ack(7), alive(), claim(), name()),
    "ping_req": packet(PingReq(8, C)),
    "nack": packet(Nack(8)),
    "gossip-alive": packet(Gossip(), alive(seal=SEAL)),
    "gossip-suspect": packet(Gossip(), claim(), claim(by=C)),
    "gossip-dead": packet(Gossip(), claim(State.DEAD)),
    "gossip-left": packet(Gossip(), MemberRecord(said(4, left=True), State.LEFT, 4, A, 60)),
    "gossip-tombstone": packet(Gossip(), NameRecord(Entry("pp-entry", 42, START, A, False), 10)),
    "gossip-name-sealed": packet(Gossip(), name(SEAL)),
    "sync": packet(Sync(False, 0, U64_MAX, LINES)),
    "sync-join": packet(Sync(True, 0, U64_MAX, ()), alive(0)),
    "sync-page": packet(Sync(False, 5, 9, LINES)),
    "pull": packet(Pull((5, 9))),
    "told": packet(Told(False), MemberRecord(said(), State.DEAD, 5, B, 90)),
    "told-more": packet(Told(True), MemberRecord(said(), State.SUSPECT, 3, B)),
    "refuse": packet(Refuse(Fault.LABEL_TAKEN)),
}
