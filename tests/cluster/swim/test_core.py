"""A member among others, by hand: coming in, probes and helpers, refuting, leaving, names, standing still."""

from __future__ import annotations

from random import Random

import pytest

from cluster.swim.hall import START, A, B, C, D, Hall, make_packet, sent_packets
from ropeway.cluster.names import Entry
from ropeway.cluster.swim import LAN, Contact, NameGone, NameSet, Send, State, Statement, Swim, Unsealed
from ropeway.cluster.swim.packets import PACKET_BYTES, Ack, Gossip, Nack, Ping, PingReq, Sync, decode_packet
from ropeway.cluster.swim.records import MemberRecord, NameRecord, stated
from ropeway.cluster.swim.values import Claim


def state(swim: Swim, member: bytes) -> State:
    held = swim.member(member)
    assert held is not None
    return held.state


def make_hall(*ids: bytes, sealed: bool = False) -> Hall:
    hall = Hall(*ids, sealed=sealed)
    hall.join(*ids[1:], by=ids[0])
    return hall


@pytest.mark.parametrize("sealed", [False, True])
def test_members_come_in_by_one_and_know_all(sealed: bool) -> None:
    hall = make_hall(A, B, C, D, sealed=sealed)
    for swim in hall.members.values():
        assert [member.id for member in swim.living()] == [A, B, C, D]


def test_who_comes_in_knocks_until_somebody_answers() -> None:
    hall = Hall(A, B)
    hall.members[B].join(hall.now, [Contact(A, b"the door")])
    hall.run(5.0, lose=lambda sender, send: hall.now < 4.0)
    knocks = [send for sender, send in hall.sent if sender == B and send.to == A and send.address == b"the door"]
    assert 4 <= len(knocks) <= 6
    assert len(hall.members[A].living()) == 2


def test_our_own_id_is_no_contact() -> None:
    hall = Hall(A)
    hall.members[A].join(hall.now, [Contact(A)])
    hall.run(3.0)
    assert hall.sent == []


def test_every_round_probes_every_other_member_once() -> None:
    hall = make_hall(A, B, C, D)
    hall.sent.clear()
    hall.run(30.0)
    probed = [send.to for sender, send in hall.sent if sender == A and isinstance(body(send), Ping)]
    at = probed.index(probed[0])
    rounds = [probed[index : index + 3] for index in range(at, len(probed) - 2, 3)]
    offset = next(k for k in range(3) if all(len(set(probed[i : i + 3])) == 3 for i in range(k, len(probed) - 2, 3)))
    assert len(rounds) >= 8
    assert offset in (0, 1, 2)


def body(send: Send) -> object:
    return decode_packet(send.packet).body


def test_an_ack_counts_only_from_the_one_that_was_pinged() -> None:
    hall = make_hall(A, B, C)
    swim = hall.members[A]
    while not (pings := [send for send in swim.outgoing() if isinstance(body(send), Ping)]):
        hall.now += 0.1
        swim.tick(hall.now)
    ping = body(pings[0])
    assert isinstance(ping, Ping)
    other = C if pings[0].to == B else B
    swim.received(hall.now, other, make_packet(Ack(ping.seq)))
    hall.now += LAN.probe_interval_s + 0.1
    swim.tick(hall.now)
    assert state(swim, pings[0].to) is State.SUSPECT


def test_helpers_find_a_member_that_we_cannot_reach() -> None:
    hall = make_hall(A, B, C)
    hall.run(20.0, lose=lambda sender, send: {sender, send.to} == {A, B})
    assert any(isinstance(said, PingReq) for said in hall.bodies(A, C))
    assert any(isinstance(said, Ack) for said in hall.bodies(C, A))
    assert "Suspected" not in hall.kinds(A) + hall.kinds(B) + hall.kinds(C)


def test_helpers_say_so_when_they_get_no_answer_either() -> None:
    hall = make_hall(A, B, C, D)
    hall.run(8.0, but=B)
    assert any(isinstance(said, Nack) for said in hall.bodies(C, A) + hall.bodies(D, A))


def test_helpers_that_keep_silent_too_speak_against_us() -> None:
    hall = make_hall(A, B, C, D)
    hall.run(8.0, lose=lambda sender, send: A in (sender, send.to))
    assert hall.members[A].health >= 3


def test_a_stopped_member_dies_in_time_and_comes_back_with_its_names() -> None:
    hall = make_hall(A, B, C)
    hall.members[B].register(hall.now, "pp-entry", b"ring 7")
    hall.run(1.0)
    entry = hall.members[A].resolve("pp-entry")
    assert entry is not None
    assert (entry.node, entry.value) == (B, b"ring 7")
    hall.run(12.0, but=B)
    assert hall.kinds(A)[-3:] == ["Suspected", "Died", "NameGone"]
    assert hall.members[A].resolve("pp-entry") is None
    hall.run(LAN.rejoin_interval_s * 2)
    assert state(hall.members[A], B) is State.ALIVE
    assert hall.members[C].resolve("pp-entry") == entry


def test_a_restarted_member_is_another_and_its_old_names_stay_gone() -> None:
    hall = make_hall(A, B, C)
    hall.members[B].register(hall.now, "pp-entry")
    hall.run(1.0)
    hall.add(B, start=START + 1)
    hall.join(B, by=A)
    assert state(hall.members[C], B) is State.ALIVE
    assert [swim.names() for swim in hall.members.values()] == [{}, {}, {}]


def test_who_leaves_is_left_at_once_and_not_dead() -> None:
    hall = make_hall(A, B, C)
    hall.members[B].register(hall.now, "n")
    hall.run(1.0)
    hall.members[B].leave(hall.now)
    hall.run(1.0)
    assert hall.kinds(A)[-2:] == ["Left", "NameGone"]
    assert state(hall.members[C], B) is State.LEFT
    hall.run(10.0)
    assert "Suspected" not in hall.kinds(A) + hall.kinds(C)


def test_suspicion_reaches_the_suspect_with_the_first_packet_and_is_refuted() -> None:
    hall = make_hall(A, B, C)
    b = hall.members[B]
    b.received(hall.now, C, make_packet(Gossip(), Claim(B, START, 0, State.SUSPECT, C)))
    assert [m.incarnation for m in b.members() if m.id == B] == [1]
    hall.members[A].received(hall.now, C, make_packet(Gossip(), Claim(B, START, 1, State.SUSPECT, C)))
    assert state(hall.members[A], B) is State.SUSPECT
    hall.members[A].received(hall.now, B, make_packet(Ping(9)))
    answer = next(packet for packet in sent_packets(hall.members[A]) if packet.body == Ack(9))
    assert answer.records[0] == Claim(B, START, 1, State.SUSPECT, C)


@pytest.mark.parametrize("how", [State.SUSPECT, State.DEAD])
def test_who_has_missed_the_answer_to_a_doubt_is_given_it_again(how: State) -> None:
    hall = make_hall(A, B, C)
    b = hall.members[B]
    b.received(hall.now, C, make_packet(Gossip(), Claim(B, START, 0, how, C)))
    b.outgoing()
    stale = make_packet(Gossip(), Claim(B, START, 0, how, C))
    for _ in range(2):
        b.received(hall.now, A, stale)
        [told] = [send for send in b.outgoing() if send.to == A and stale != send.packet]
        [record] = decode_packet(told.packet).records
        assert isinstance(record, MemberRecord)
        assert (record.statement.member, record.state, record.incarnation) == (B, State.ALIVE, 1)
    b.received(hall.now, A, make_packet(Gossip(), Claim(C, START, 0, State.SUSPECT, A)))  # nothing of us to answer
    b.received(hall.now, A, make_packet(Gossip()))
    assert record not in [record for packet in sent_packets(b) for record in packet.records]


def test_names_follow_the_last_writer_and_are_unregistered_by_their_own() -> None:
    hall = make_hall(A, B, C)
    hall.members[A].register(hall.now, "n", b"a")
    hall.run(1.0)
    hall.members[B].register(hall.now, "n", b"b")
    hall.run(1.0)
    assert {swim.names()["n"].node for swim in hall.members.values()} == {B}
    hall.members[A].unregister(hall.now, "n")
    hall.run(1.0)
    assert {swim.names()["n"].node for swim in hall.members.values()} == {B}
    hall.members[B].unregister(hall.now, "n")
    hall.run(1.0)
    assert [swim.names() for swim in hall.members.values()] == [{}, {}, {}]
    named = [event for event in hall.events[C] if isinstance(event, NameSet | NameGone)]
    assert [type(event) for event in named] == [NameSet, NameSet, NameGone]


def test_who_comes_late_learns_the_names() -> None:
    hall = make_hall(A, B)
    for number in range(40):
        hall.members[A].register(hall.now, f"pp-stage-{number}", bytes(100))
    hall.add(C)
    hall.join(C, by=B)
    assert len(hall.members[C].names()) == 40


def test_a_moved_member_is_dialled_at_its_new_address() -> None:
    hall = make_hall(A, B)
    hall.members[B].move(hall.now, b"elsewhere")
    hall.run(2.0)
    assert "Updated" in hall.kinds(A)
    assert [send.address for sender, send in hall.sent if send.to == B][-1] == b"elsewhere"


def test_standing_still_makes_nobody_suspect() -> None:
    hall = make_hall(A, B, C)
    hall.run(60.0, lose=lambda sender, send: sender != A, but=A)  # nobody hears anybody, and A stands still
    before = hall.members[A].health
    hall.members[A].tick(hall.now)
    assert [m.state for m in hall.members[A].members()] == [State.ALIVE] * 3
    assert hall.members[A].health == before + 1


def test_an_outlived_member_registers_its_names_again() -> None:
    hall = make_hall(A, B)
    hall.members[A].register(hall.now, "n", b"v")
    hall.members[A].received(hall.now, B, make_packet(Gossip(), stated(Statement(A, START + 50))))
    hall.run(1.0)
    entry = hall.members[B].resolve("n")
    assert entry is not None
    assert (entry.generation, entry.value) == (START + 51, b"v")


def test_packets_stay_small_however_much_there_is_to_tell() -> None:
    hall = make_hall(A, B)
    for number in range(200):
        hall.members[A].register(hall.now, f"name-{number:03}", bytes(number % 128))
    hall.run(40.0)
    assert max(len(send.packet) for _, send in hall.sent) <= PACKET_BYTES
    assert hall.members[B].names() == hall.members[A].names()
    hall.sent.clear()
    hall.run(5.0)
    assert not any(decode_packet(send.packet).records for _, send in hall.sent)  # told often enough, and then no more


def test_a_lone_member_with_much_to_show_knocks_with_small_packets() -> None:
    hall = Hall()
    swim = hall.add(A, label="l" * 63)
    swim.move(hall.now, bytes(255))
    for number in range(200):
        swim.register(hall.now, f"name-{number:03}")
    swim.join(hall.now, [Contact(B)])
    hall.run(0.5)
    pages = [decode_packet(send.packet).body for _, send in hall.sent]
    assert sum(len(page.lines) for page in pages if isinstance(page, Sync)) == 201
    assert max(len(send.packet) for _, send in hall.sent) <= PACKET_BYTES


def test_time_is_only_an_argument() -> None:
    swim = Hall(A).members[A]
    due = swim.next_at()
    for _ in range(5):
        swim.tick(0.0)
    assert swim.next_at() == due
    assert swim.outgoing() == []


def test_configuration_is_judged() -> None:
    with pytest.raises(ValueError, match="cluster"):
        Swim(Statement(A, 1), b"short", LAN, Random(1), 0.0, Unsealed())
    with pytest.raises(ValueError, match="member"):
        Statement(b"short", 1)
    with pytest.raises(ValueError, match="label"):
        Statement(A, 1, label="x" * 64)
    with pytest.raises(ValueError, match="address"):
        Statement(A, 1, address=bytes(256))


def test_strangers_are_asked_who_they_are() -> None:
    hall = make_hall(A, B)
    hall.add(C)
    hall.members[A].received(hall.now, C, make_packet(Ping(3)))
    hall.pump()
    assert state(hall.members[A], C) is State.ALIVE


def test_records_of_dead_strangers_and_orphaned_names_do_no_harm() -> None:
    hall = make_hall(A, B)
    dead = MemberRecord(Statement(C, 5), State.DEAD, 0, B, 10)
    orphan = NameRecord(Entry("n", 1, 5, D, True))
    ghost = NameRecord(Entry("m", 1, 5, C, True))
    hall.members[A].received(hall.now, B, make_packet(Gossip(), dead, orphan, ghost))
    assert hall.members[A].names() == {}
    assert state(hall.members[A], C) is State.DEAD
