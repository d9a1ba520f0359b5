"""Members that lie: another's name, another cluster, forged seals, floods. Refused by name, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.swim.golden_values import GOOD
from cluster.swim.hall import CLUSTER, START, A, B, C, D, Hall, KeyedSeal, make_packet, sent_packets
from cluster.swim.strategies import bodies, records, steady
from ropeway.cluster.names import Entry
from ropeway.cluster.simulation import view
from ropeway.cluster.swim import Contact, Fault, PacketError, State, Statement
from ropeway.cluster.swim.exchange import ANSWER_PACKETS, key_of
from ropeway.cluster.swim.packets import Body, Gossip, Ping, Pull, Refuse, Sync, Told
from ropeway.cluster.swim.records import MemberRecord, NameRecord, Record, entry_said, stated, statement_said
from ropeway.cluster.swim.values import Claim

U64_MAX = (1 << 64) - 1
EVERYTHING = Sync(True, 0, U64_MAX, ())


def sealed_hall(*ids: bytes) -> Hall:
    hall = Hall(*ids, sealed=True)
    hall.join(*ids[1:], by=ids[0])
    return hall


def sealed(statement: Statement, by: bytes) -> Statement:
    return replace(statement, seal=KeyedSeal(by).sign(statement_said(CLUSTER, statement)))


def refused(hall: Hall, fault: Fault, sender: bytes, packet: bytes) -> None:
    """A must refuse the packet by that name and be as before."""
    swim = hall.members[A]
    before = view(swim)
    with pytest.raises(PacketError) as caught:
        swim.received(hall.now, sender, packet)
    assert caught.value.fault is fault
    assert view(swim) == before
    assert swim.outgoing() == []
    assert swim.events() == []


def test_a_member_that_joins_as_another_is_refused() -> None:
    hall = sealed_hall(A, B, C)
    refused(hall, Fault.WRONG_SENDER, D, make_packet(EVERYTHING, stated(sealed(Statement(B, START + 9), B))))


def test_a_sender_with_our_own_key_is_refused() -> None:
    refused(sealed_hall(A, B), Fault.WRONG_SENDER, A, make_packet(Ping(1)))


def test_another_cluster_is_refused() -> None:
    refused(sealed_hall(A, B), Fault.WRONG_CLUSTER, B, make_packet(Ping(1), cluster=b"other 01"))


@pytest.mark.parametrize(
    "forge",
    [
        lambda: stated(sealed(Statement(C, START, 1, "mine now"), B)),  # B speaks as C
        lambda: stated(sealed(Statement(C, START, 1, left=True), B)),  # B lets C leave
        lambda: stated(Statement(C, START, 1)),  # no seal at all
        lambda: MemberRecord(sealed(Statement(A, START + 1), B), State.DEAD, 3, B),  # B buries a life of A
        lambda: NameRecord(name_of(C, by=B)),
        lambda: NameRecord(Entry("pp-entry", 9, START, C)),
    ],
)
def test_what_a_member_says_of_itself_only_it_can_say(forge: Callable[[], Record]) -> None:
    hall = sealed_hall(A, B, C)
    refused(hall, Fault.BAD_SEAL, B, make_packet(Gossip(), Claim(C, START, 0, State.SUSPECT, B), forge()))


def name_of(node: bytes, by: bytes) -> Entry:
    entry = Entry("pp-entry", 9, START, node)
    return replace(entry, seal=KeyedSeal(by).sign(entry_said(CLUSTER, entry)))


def test_a_true_record_is_believed_whoever_passes_it_on() -> None:
    hall = sealed_hall(A, B, C)
    true = stated(sealed(Statement(C, START, 1, "moved"), C))
    hall.members[A].received(hall.now, B, make_packet(Gossip(), true, NameRecord(name_of(C, by=C))))
    entry = hall.members[A].resolve("pp-entry")
    assert entry is not None
    assert entry.node == C
    assert [member.label for member in hall.members[A].members()] == ["", "", "moved"]


def test_an_old_word_said_again_changes_nothing() -> None:
    hall = sealed_hall(A, B, C)
    swim = hall.members[A]
    swim.received(hall.now, C, make_packet(Gossip(), stated(sealed(Statement(C, START, 4, "new"), C))))
    before = view(swim)
    swim.received(hall.now, B, make_packet(Gossip(), stated(sealed(Statement(C, START, 3, "old"), C))))
    swim.received(hall.now, B, make_packet(Gossip(), stated(sealed(Statement(C, START - 1, 9, left=True), C))))
    assert view(swim) == before


@pytest.mark.parametrize("body", [EVERYTHING, Gossip(), Told(False)])
def test_a_label_that_a_living_member_has_is_refused_to_others(body: Body) -> None:
    hall = Hall()
    hall.add(A, label="attic")
    hall.add(B, label="cellar")
    hall.join(B, by=A)
    hall.members[A].received(hall.now, C, make_packet(body, stated(Statement(C, 5, label="cellar"))))
    assert [packet.body for packet in sent_packets(hall.members[A])] == [Refuse(Fault.LABEL_TAKEN)]
    assert len(hall.members[A].members()) == 2


def test_who_is_refused_hears_why() -> None:
    hall = Hall()
    hall.add(A, label="attic")
    hall.add(B, label="attic")
    hall.members[B].join(hall.now, [Contact(A)])
    hall.run(0.5)
    assert hall.kinds(B) == ["Refused"]
    assert hall.kinds(A) == []
    hall.add(C, label="attic")  # nobody whom B has asked
    hall.members[B].received(hall.now, C, make_packet(Refuse(Fault.CLUSTER_FULL)))
    assert hall.members[B].events() == []


@pytest.mark.parametrize(
    "joined", [(), (stated(Statement(C, 1)), stated(Statement(C, 1))), (Claim(B, 1, 0, State.DEAD, C),)]
)
def test_who_joins_sends_itself_and_nothing_else(joined: tuple[Record, ...]) -> None:
    hall = Hall(A, B)
    hall.join(B, by=A)
    refused(hall, Fault.BAD_VALUE, C, make_packet(EVERYTHING, *joined))


def test_a_member_draws_only_so_much_from_us() -> None:
    hall = Hall(A, B)
    hall.join(B, by=A)
    for number in range(250):
        hall.members[A].register(hall.now, f"name-{number:03}", bytes(120))
    hall.run(30.0)
    pull = make_packet(Pull(tuple(sorted(key_of(f"name-{number:03}") for number in range(140)))))
    hall.members[A].outgoing()
    for _ in range(200):
        hall.members[A].received(hall.now, B, pull)
    told = [packet for packet in sent_packets(hall.members[A]) if isinstance(packet.body, Told)]
    assert len(told) == ANSWER_PACKETS


def test_a_flood_of_joins_leaves_the_others_alone() -> None:
    hall = Hall(A, B, C)
    hall.join(B, C, by=A)
    for number in range(500):
        stranger = number.to_bytes(4, "little") * 8
        hall.members[A].received(hall.now, stranger, make_packet(EVERYTHING, stated(Statement(stranger, 1))))
        hall.members[A].outgoing()
    hall.run(3.0)
    assert [member.state for member in hall.members[B].members() if member.id in (A, B, C)] == [State.ALIVE] * 3
    assert len(hall.members[A].members()) == 503


@steady
@given(st.lists(st.tuples(st.sampled_from([B, C, D]), bodies, st.lists(records, max_size=3)), max_size=12))
def test_whatever_members_say_only_packet_error_comes_of_it(said: list[tuple[bytes, Body, list[Record]]]) -> None:
    hall = Hall(A, B, C)
    hall.join(B, C, by=A)
    swim = hall.members[A]
    for sender, body, told in said:
        try:
            swim.received(hall.now, sender, make_packet(body, *told))
        except PacketError:
            continue
        hall.now += 0.3
        swim.tick(hall.now)
        assert swim.next_at() >= hall.now
        assert all(len(send.packet) <= 1_200 for send in swim.outgoing())
    me = swim.member(A)
    assert me is not None
    assert me.state is State.ALIVE


def test_golden_packets_of_another_cluster_are_all_refused() -> None:
    hall = Hall(A, B)
    hall.join(B, by=A)
    for packet in GOOD.values():
        refused(hall, Fault.WRONG_CLUSTER, B, make_packet(packet.body, *packet.records, cluster=packet.cluster))
