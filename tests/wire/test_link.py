"""Two links joined by hand, without a socket: the hello, every frame both ways, lent memory, ends and mistakes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from ropeway.wire import (
    Channel,
    Described,
    Done,
    DoneHeard,
    EchoHeard,
    ErrorCode,
    Fate,
    FateHeard,
    FateKind,
    Header,
    Hello,
    HelloDone,
    Kind,
    Link,
    Op,
    Plan,
    PlanHeard,
    ProbeHeard,
    ProtocolError,
    ReadyHeard,
    RowsHeard,
    Side,
    StreamEntry,
    Token,
    Tokens,
    TokensHeard,
    encode_header,
)
from wire.golden_files import ACCEPTOR_NONCE, DIALER_NONCE, FINGERPRINT, KEY, load
from wire.golden_values import LLAMACPP
from wire.hearing import READY, feed, lend, make_link, refuse, shake_hands

PLAN = Plan((StreamEntry(3, Op.OPEN, rows=5),))
LOST = Fate(FateKind.FAIL, ErrorCode.PEER_LOST, 1, "rank 1 is lost")
STOP = Fate(FateKind.STOP, ErrorCode.NONE, 0)


def pair(channel: Channel, dialer: int, acceptor: int, world: int = 2) -> tuple[Link, Link]:
    """Both ends of a proved connection."""
    there = Link(Side.DIALER, channel, Hello(dialer, world, channel, FINGERPRINT, DIALER_NONCE), KEY, lend=lend)
    back = Link(
        Side.ACCEPTOR, None, Hello(acceptor, world, Channel.CONTROL, FINGERPRINT, ACCEPTOR_NONCE), KEY, lend=lend
    )
    shake_hands(there, back)
    assert (there.proved, back.proved) == (True, True)
    return there, back


def control() -> tuple[Link, Link]:
    """A stage's and rank 0's end of a control connection, in its rounds."""
    stage, first = pair(Channel.CONTROL, 1, 0)
    assert carry(first, stage.send_describe(LLAMACPP)) == [Described(LLAMACPP)]
    assert carry(first, stage.send_ready(READY)) == [ReadyHeard(READY)]
    return stage, first


def carry(to: Link, frame: tuple[bytes | memoryview, ...]) -> list[object]:
    events: list[object] = []
    for piece in frame:
        events += feed(to, piece)
    return events


def code_of(error: pytest.ExceptionInfo[ProtocolError]) -> ErrorCode:
    return error.value.code


def test_the_hello_is_that_of_the_golden_files() -> None:
    dialer = make_link("dialer 1 of 2 on control")
    acceptor = make_link("acceptor 0 of 2")
    assert acceptor.outgoing() == []
    assert dialer.outgoing() == [load("hello-dialer").raw]
    assert dialer.outgoing() == []
    assert feed(acceptor, load("hello-dialer").raw) == []
    assert acceptor.outgoing() == [load("hello-acceptor").raw]
    assert feed(dialer, load("hello-acceptor").raw) == []
    assert dialer.outgoing() == [load("proof-dialer").raw]
    proved = [acceptor.proved]
    [heard] = feed(acceptor, load("proof-dialer").raw)
    assert isinstance(heard, HelloDone)
    assert (heard.peer.rank, heard.peer.channel) == (1, Channel.CONTROL)
    assert acceptor.outgoing() == [load("proof-acceptor").raw]
    proved += [acceptor.proved, dialer.proved]
    [heard] = feed(dialer, load("proof-acceptor").raw)
    assert isinstance(heard, HelloDone)
    assert heard.peer == dialer.peer
    assert heard.peer.rank == 0
    assert [*proved, dialer.proved] == [False, True, False, True]


def test_rounds_go_both_ways_on_control() -> None:
    stage, first = control()
    assert carry(stage, first.send_plan(1, PLAN.encode())) == [PlanHeard(1, PLAN)]
    done = Done(1, wait_rows_ns=1, forward_ns=2, wait_send_ns=3)
    assert carry(first, stage.send_done(1, done)) == [DoneHeard(1, done)]


def test_a_keepalive_is_answered_with_the_last_round() -> None:
    stage, first = control()
    [heard] = carry(stage, first.send_plan(1, Plan().encode()))
    assert heard == PlanHeard(1, Plan())
    assert isinstance(heard, PlanHeard)
    assert heard.plan.is_keepalive
    assert carry(first, stage.send_alive()) == [DoneHeard(0, Done(1))]
    carry(stage, first.send_plan(2, PLAN.encode()))
    carry(first, stage.send_done(2, Done(1)))
    carry(stage, first.send_plan(3, Plan().encode()))
    assert carry(first, stage.send_alive()) == [DoneHeard(2, Done(1))]


def test_rows_come_in_the_memory_that_was_lent() -> None:
    lent: list[memoryview] = []

    def lend_and_keep(header: Header) -> memoryview:
        assert header == Header(Kind.ROWS, 41, 3, 0, 48)
        lent.append(memoryview(bytearray(64))[8:56])
        return lent[-1]

    back = Link(
        Side.ACCEPTOR, Channel.ROWS, Hello(1, 2, Channel.ROWS, FINGERPRINT, ACCEPTOR_NONCE), KEY, lend=lend_and_keep
    )
    there = make_link("dialer 0 of 2 on rows")
    shake_hands(there, back)
    rows = memoryview(bytes(range(48)))
    frame = there.send_rows(41, 0, 3, rows)
    assert frame[1] is rows, "the sender does not copy"
    feed(back, frame[0])
    assert len(lent) == 1
    assert len(back.buffer()) == 48
    [event] = feed(back, frame[1])
    assert event == RowsHeard(41, 0, 3, rows)
    lent[0][0] = 99
    assert isinstance(event, RowsHeard)
    assert event.payload[0] == 99, "nor does the receiver"


def test_rows_of_the_wrong_length_are_refused_before_any_memory() -> None:
    there, back = pair(Channel.ROWS, 0, 1)
    head = encode_header(Header(Kind.ROWS, 1, 1, 0, 0xFFFFFFFF))
    tracemalloc.start()
    with pytest.raises(ProtocolError) as caught:
        feed(back, head)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert code_of(caught) is ErrorCode.ROWS_LENGTH
    assert peak < 100_000
    assert there.proved


def test_a_link_that_lends_nothing_takes_no_rows() -> None:
    back = Link(Side.ACCEPTOR, None, Hello(1, 2, Channel.ROWS, FINGERPRINT, ACCEPTOR_NONCE), KEY)
    there = make_link("dialer 0 of 2 on rows")
    shake_hands(there, back)
    with pytest.raises(ProtocolError) as caught:
        carry(back, there.send_rows(1, 0, 1, memoryview(bytes(8))))
    assert code_of(caught) is ErrorCode.ROWS_LENGTH


def test_memory_of_the_wrong_size_is_our_own_mistake() -> None:
    hello = Hello(1, 2, Channel.ROWS, FINGERPRINT, ACCEPTOR_NONCE)
    back = Link(Side.ACCEPTOR, None, hello, KEY, lend=lambda _: memoryview(bytearray(1)))
    there = make_link("dialer 0 of 2 on rows")
    shake_hands(there, back)
    with pytest.raises(ValueError, match="lend"):
        carry(back, there.send_rows(1, 0, 1, memoryview(bytes(8))))


def test_huge_claims_make_no_memory() -> None:
    stage, _ = control()
    plan = load("plan-truncated-all").raw
    tracemalloc.start()
    with pytest.raises(ProtocolError) as caught:
        feed(stage, plan)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert code_of(caught) is ErrorCode.TRUNCATED
    assert peak < 100_000


def test_tokens_go_on_the_edge_back_only() -> None:
    last, first = pair(Channel.ROWS, 2, 0, 3)
    tokens = Tokens((Token(3, 9906, 6, done=False),))
    assert carry(first, last.send_tokens(1, tokens)) == [TokensHeard(1, tokens)]
    there, _ = pair(Channel.ROWS, 1, 2, 3)
    with pytest.raises(ProtocolError) as caught:
        there.send_tokens(1, tokens)
    assert code_of(caught) is ErrorCode.ILLEGAL_FRAME


def test_probes_are_echoed() -> None:
    there, back = pair(Channel.PROBE, 1, 0)
    assert carry(back, there.send_probe(7, memoryview(b"anything"))) == [ProbeHeard(7, 8)]
    with pytest.raises(ProtocolError) as caught:
        there.send_probe(8, memoryview(b""))
    assert code_of(caught) is ErrorCode.ILLEGAL_FRAME
    assert carry(there, back.send_echo(7)) == [EchoHeard(7)]
    assert carry(back, there.send_probe(8, memoryview(b""))) == [ProbeHeard(8, 0)]
    assert carry(there, back.send_echo(8)) == [EchoHeard(8)]
    there.eof()
    back.eof()


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
