"""The state table by itself, against wire.md 3 written out by hand."""

from __future__ import annotations

from itertools import product

import pytest

from ropeway.wire import Channel, ErrorCode, Header, Kind, ProtocolError, Side
from ropeway.wire.conversation import Conversation, State

LENGTHS = {Kind.HELLO: 80, Kind.PROOF: 32, Kind.ROWS: 8, Kind.FATE: 8}

D, A = Side.DIALER, Side.ACCEPTOR

LEGAL = {
    State.DIALER_HELLO: {(D, Kind.HELLO)},
    State.ACCEPTOR_HELLO: {(A, Kind.HELLO)},
    State.DIALER_PROOF: {(D, Kind.PROOF)},
    State.ACCEPTOR_PROOF: {(A, Kind.PROOF)},
    State.DESCRIBE: {(D, Kind.DESCRIBE)},
    State.READY: {(D, Kind.READY)},
    State.ROUNDS: {(A, Kind.PLAN), (D, Kind.DONE)},
    State.ROWS: {(D, Kind.ROWS)},
    State.RETURN: {(D, Kind.ROWS), (D, Kind.TOKENS)},
    State.PROBE: {(D, Kind.PROBE)},
    State.ECHO: {(A, Kind.ECHO)},
}
"""Besides a fate, which is legal in each."""


def header(kind: Kind, round_: int = 0, rows: int = 0, part: int = 0) -> Header:
    return Header(kind, round_, rows, part, LENGTHS.get(kind, 0))


def fitting(kind: Kind) -> Header:
    """A header that nothing but the state can refuse."""
    if kind is Kind.ROWS:
        return header(kind, 1, 1)
    return header(kind, 1 if kind in (Kind.PLAN, Kind.TOKENS) else 0)


def code_of(conversation: Conversation, side: Side, head: Header) -> ErrorCode:
    with pytest.raises(ProtocolError) as caught:
        conversation.judge(side, head)
    return caught.value.code


@pytest.mark.parametrize(("state", "side", "kind"), list(product(LEGAL, Side, Kind)))
def test_each_state_takes_just_what_the_page_says(state: State, side: Side, kind: Kind) -> None:
    conversation = Conversation()
    conversation.state = state
    if (side, kind) in LEGAL[state] or kind is Kind.FATE:
        conversation.judge(side, fitting(kind))
    else:
        assert code_of(conversation, side, fitting(kind)) is ErrorCode.ILLEGAL_FRAME
        assert conversation.state is state


def open_channel(channel: Channel, *, edge_back: bool = False) -> Conversation:
    conversation = Conversation()
    conversation.channel = channel
    conversation.edge_back = edge_back
    for side, kind in ((D, Kind.HELLO), (A, Kind.HELLO), (D, Kind.PROOF), (A, Kind.PROOF)):
        conversation.judge(side, header(kind))
    return conversation


def test_each_channel_goes_its_way() -> None:
    control = open_channel(Channel.CONTROL)
    states = [control.state]
    for kind in (Kind.DESCRIBE, Kind.READY):
        control.judge(D, header(kind))
        states.append(control.state)
    assert states == [State.DESCRIBE, State.READY, State.ROUNDS]
    assert open_channel(Channel.ROWS).state is State.ROWS
    assert open_channel(Channel.ROWS, edge_back=True).state is State.RETURN
    probe = open_channel(Channel.PROBE)
    states = [probe.state]
    for side, kind in ((D, Kind.PROBE), (A, Kind.ECHO)):
        probe.judge(side, header(kind, 7))
        states.append(probe.state)
    assert states == [State.PROBE, State.ECHO, State.PROBE]


def test_a_side_is_silent_after_its_own_end_only() -> None:
    control = open_channel(Channel.CONTROL)
    control.judge(D, header(Kind.DESCRIBE))
    control.judge(D, header(Kind.READY))
    control.judge(A, header(Kind.FATE))
    control.end(A)
    assert code_of(control, A, header(Kind.PLAN, 1)) is ErrorCode.ILLEGAL_FRAME
    assert code_of(control, A, header(Kind.FATE)) is ErrorCode.ILLEGAL_FRAME
    control.judge(D, header(Kind.DONE))


def test_rounds_are_counted_a_side() -> None:
    control = open_channel(Channel.CONTROL)
    control.judge(D, header(Kind.DESCRIBE))
    control.judge(D, header(Kind.READY))
    control.judge(A, header(Kind.PLAN, 4))
    control.judge(A, header(Kind.PLAN, 9))
    control.judge(D, header(Kind.DONE, 4))
    control.judge(D, header(Kind.DONE, 4))
    assert control.last_round(A) == 9
    assert control.last_round(D) == 4
    assert code_of(control, D, header(Kind.DONE, 3)) is ErrorCode.ROUND_ORDER
    assert code_of(control, D, header(Kind.DONE, 10)) is ErrorCode.ROUND_ORDER
    assert code_of(control, A, header(Kind.PLAN, 9)) is ErrorCode.ROUND_ORDER
    control.judge(A, header(Kind.PLAN, 10))
    control.judge(D, header(Kind.DONE, 10))


def test_parts_follow_one_another_in_each_round() -> None:
    rows = open_channel(Channel.ROWS)
    for round_, part in ((1, 0), (1, 1), (1, 2), (4, 0), (5, 0), (5, 1)):
        rows.judge(D, header(Kind.ROWS, round_, 1, part))
    for round_, part in ((5, 1), (5, 3), (6, 1), (4, 0)):
        assert code_of(rows, D, header(Kind.ROWS, round_, 1, part)) is ErrorCode.ROUND_ORDER
    rows.judge(D, header(Kind.ROWS, 5, 1, 2))


def test_a_refused_header_changes_nothing() -> None:
    rows = open_channel(Channel.ROWS)
    rows.judge(D, header(Kind.ROWS, 1, 1))
    assert code_of(rows, D, header(Kind.ROWS, 8, 0)) is ErrorCode.EMPTY_ROWS
    rows.judge(D, header(Kind.ROWS, 1, 1, 1))


def test_an_echo_repeats_its_probe() -> None:
    probe = open_channel(Channel.PROBE)
    probe.judge(D, header(Kind.PROBE, 7))
    assert code_of(probe, A, header(Kind.ECHO, 6)) is ErrorCode.ROUND_ORDER
    assert code_of(probe, A, header(Kind.ECHO, 8)) is ErrorCode.ROUND_ORDER
    probe.judge(A, header(Kind.ECHO, 7))
    assert code_of(probe, D, header(Kind.PROBE, 6)) is ErrorCode.ROUND_ORDER
