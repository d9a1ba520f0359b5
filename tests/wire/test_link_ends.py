"""How a connection ends: fates, refusals, closed sockets, and mistakes of ours and of the peer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropeway.wire import (
    Channel,
    Done,
    DoneHeard,
    ErrorCode,
    Fate,
    FateHeard,
    FateKind,
    Hello,
    Link,
    Op,
    Plan,
    PlanHeard,
    ProtocolError,
    Side,
    StreamEntry,
)
from wire.golden_files import ACCEPTOR_NONCE, DIALER_NONCE, FINGERPRINT, KEY, load
from wire.hearing import carry, code_of, control, feed, make_link, pair, refuse, shake_hands

PLAN = Plan((StreamEntry(3, Op.OPEN, rows=5),))
LOST = Fate(FateKind.FAIL, ErrorCode.PEER_LOST, 1, "rank 1 is lost")
STOP = Fate(FateKind.STOP, ErrorCode.NONE, 0)


def test_a_fate_ends_one_direction() -> None:
    stage, first = control()
    carry(stage, first.send_plan(1, PLAN.encode()))
    assert carry(stage, first.send_fate(replace(STOP, what=FateKind.DRAIN))) == [
        FateHeard(replace(STOP, what=FateKind.DRAIN), proved=True)
    ]
    carry(stage, first.send_plan(2, PLAN.encode()))
    assert carry(stage, first.send_fate(STOP)) == [FateHeard(STOP, proved=True)]
    with pytest.raises(ProtocolError) as caught:
        first.send_plan(3, PLAN.encode())
    assert code_of(caught) is ErrorCode.ILLEGAL_FRAME
    assert carry(first, stage.send_done(1, Done(1))) == [DoneHeard(1, Done(1))]
    stage.eof()
    with pytest.raises(ProtocolError) as caught:
        first.eof()
    assert code_of(caught) is ErrorCode.PEER_LOST


def test_a_refusal_is_heard_without_a_proof() -> None:
    dialer = make_link("dialer 1 of 2 on control")
    acceptor = make_link("acceptor 0 of 2", refuse)
    with pytest.raises(ProtocolError) as caught:
        shake_hands(dialer, acceptor)
    assert code_of(caught) is ErrorCode.DUPLICATE_RANK
    assert acceptor.outgoing() == []
    refusal = Fate(FateKind.FAIL, caught.value.code, 0, str(caught.value))
    assert carry(dialer, acceptor.send_fate(refusal)) == [FateHeard(refusal, proved=False)]
    assert not dialer.proved
    dialer.eof()


def test_a_fate_of_an_unproved_rank_outside_the_world_is_heard() -> None:
    """A rank of a larger ring refuses our world: its own rank may be one that we do not have."""
    dialer = make_link("dialer 1 of 2 on control")
    other = Link(Side.ACCEPTOR, None, Hello(4, 5, Channel.CONTROL, FINGERPRINT, ACCEPTOR_NONCE), KEY)
    with pytest.raises(ProtocolError) as caught:
        feed(other, dialer.outgoing()[0])
    assert code_of(caught) is ErrorCode.WRONG_WORLD
    [heard] = carry(dialer, other.send_fate(Fate(FateKind.FAIL, caught.value.code, 4)))
    assert isinstance(heard, FateHeard)
    assert heard.fate.error is ErrorCode.WRONG_WORLD


def test_two_keys_do_not_match() -> None:
    dialer = make_link("dialer 1 of 2 on control")
    hello = Hello(0, 2, Channel.CONTROL, FINGERPRINT, ACCEPTOR_NONCE)
    acceptor = Link(Side.ACCEPTOR, None, hello, bytes(32))
    with pytest.raises(ProtocolError) as caught:
        shake_hands(dialer, acceptor)
    assert code_of(caught) is ErrorCode.WRONG_KEY
    assert not acceptor.proved
    assert acceptor.outgoing() == []


def test_a_proof_that_fails_proves_nothing() -> None:
    golden = load("link-wrong_key-answer")
    dialer = make_link(golden.hears)
    with pytest.raises(ProtocolError) as caught:
        feed(dialer, golden.raw)
    assert code_of(caught) is ErrorCode.WRONG_KEY
    assert not dialer.proved


def test_our_own_mistakes_stop_no_later_frame() -> None:
    stage, first = control()
    with pytest.raises(ProtocolError) as caught:
        stage.send_plan(1, PLAN.encode())
    assert code_of(caught) is ErrorCode.ILLEGAL_FRAME
    with pytest.raises(ProtocolError) as caught:
        stage.send_done(1, Done(1))
    assert code_of(caught) is ErrorCode.ROUND_ORDER
    with pytest.raises(ProtocolError) as caught:
        first.send_plan(1 << 64, PLAN.encode())
    assert code_of(caught) is ErrorCode.BAD_VALUE
    with pytest.raises(ProtocolError) as caught:
        first.send_plan(1, bytes((16 << 20) + 1))
    assert code_of(caught) is ErrorCode.TOO_LONG
    assert carry(stage, first.send_plan(1, PLAN.encode())) == [PlanHeard(1, PLAN)]


def test_after_the_peers_mistake_only_a_fate_leaves() -> None:
    stage, _ = control()
    with pytest.raises(ProtocolError) as caught:
        feed(stage, load("header-bad_magic").raw)
    for again in (stage.buffer, lambda: stage.send_done(0, Done(1)), stage.eof):
        with pytest.raises(ProtocolError) as repeated:
            again()
        assert repeated.value is caught.value
    head, payload = stage.send_fate(LOST)
    assert len(head) == 32
    assert payload == LOST.encode()


@pytest.mark.parametrize("count", [1, 31, 33, 60])
def test_an_end_inside_a_frame_is_truncated(count: int) -> None:
    stage, first = control()
    feed(stage, b"".join(first.send_plan(1, PLAN.encode()))[:count])
    with pytest.raises(ProtocolError) as caught:
        stage.eof()
    assert code_of(caught) is ErrorCode.TRUNCATED


def test_an_end_right_behind_the_header_is_truncated() -> None:
    stage, first = control()
    feed(stage, first.send_plan(1, PLAN.encode())[0])
    with pytest.raises(ProtocolError) as caught:
        stage.eof()
    assert code_of(caught) is ErrorCode.TRUNCATED


def test_an_end_without_a_fate_is_a_lost_peer() -> None:
    for link in (make_link("acceptor 0 of 2"), *control(), *pair(Channel.ROWS, 0, 1)):
        with pytest.raises(ProtocolError) as caught:
            link.eof()
        assert code_of(caught) is ErrorCode.PEER_LOST


def test_configuration_is_judged() -> None:
    hello = Hello(1, 2, Channel.CONTROL, FINGERPRINT, DIALER_NONCE)
    with pytest.raises(ValueError, match="key"):
        Link(Side.DIALER, Channel.CONTROL, hello, bytes(31))
    with pytest.raises(ValueError, match="channel"):
        Link(Side.DIALER, None, hello, KEY)
    link = Link(Side.DIALER, Channel.CONTROL, hello, KEY)
    for count in (0, -1, 33):
        with pytest.raises(ValueError, match="count"):
            link.received(count)
