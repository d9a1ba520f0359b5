"""Two links joined by hand, without a socket: the hello, every frame both ways, lent memory."""

from __future__ import annotations

import tracemalloc

import pytest

from ropeway.wire import (
    Channel,
    Done,
    DoneHeard,
    EchoHeard,
    ErrorCode,
    Fate,
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
    RowsHeard,
    Side,
    StreamEntry,
    Token,
    Tokens,
    TokensHeard,
    encode_header,
)
from wire.golden_files import ACCEPTOR_NONCE, FINGERPRINT, KEY, load
from wire.hearing import carry, code_of, control, feed, make_link, pair, shake_hands

PLAN = Plan((StreamEntry(3, Op.OPEN, rows=5),))
LOST = Fate(FateKind.FAIL, ErrorCode.PEER_LOST, 1, "rank 1 is lost")
STOP = Fate(FateKind.STOP, ErrorCode.NONE, 0)


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
