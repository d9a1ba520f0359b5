"""The state of one connection (wire.md 3): one transition table, and the judgement of every header by it.

Reader and writer use the same object, and it does not know which side it is on: each frame is judged with the side
that sends it.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.frames import ROUNDLESS, Channel, Header, Kind, judge_length, judge_roundless, judge_rows
from ropeway.wire.hello import Side


class State(IntEnum):
    """What the connection waits for."""

    DIALER_HELLO = auto()
    ACCEPTOR_HELLO = auto()
    DIALER_PROOF = auto()
    ACCEPTOR_PROOF = auto()
    PROVED = auto()
    """Both proofs have been sent; replaced at once by the channel's first state."""
    DESCRIBE = auto()
    READY = auto()
    ROUNDS = auto()
    ROWS = auto()
    """An edge between two stages: rows only."""
    RETURN = auto()
    """The edge back from the last rank to rank 0: rows, or tokens in their place."""
    PROBE = auto()
    ECHO = auto()

    @property
    def label(self) -> str:
        """Lower-case name for messages."""
        return self.name.lower().replace("_", " ")


TABLE: Final = {
    (State.DIALER_HELLO, Side.DIALER, Kind.HELLO): State.ACCEPTOR_HELLO,
    (State.ACCEPTOR_HELLO, Side.ACCEPTOR, Kind.HELLO): State.DIALER_PROOF,
    (State.DIALER_PROOF, Side.DIALER, Kind.PROOF): State.ACCEPTOR_PROOF,
    (State.ACCEPTOR_PROOF, Side.ACCEPTOR, Kind.PROOF): State.PROVED,
    (State.DESCRIBE, Side.DIALER, Kind.DESCRIBE): State.READY,
    (State.READY, Side.DIALER, Kind.READY): State.ROUNDS,
    (State.ROUNDS, Side.ACCEPTOR, Kind.PLAN): State.ROUNDS,
    (State.ROUNDS, Side.DIALER, Kind.DONE): State.ROUNDS,
    (State.ROWS, Side.DIALER, Kind.ROWS): State.ROWS,
    (State.RETURN, Side.DIALER, Kind.ROWS): State.RETURN,
    (State.RETURN, Side.DIALER, Kind.TOKENS): State.RETURN,
    (State.PROBE, Side.DIALER, Kind.PROBE): State.ECHO,
    (State.ECHO, Side.ACCEPTOR, Kind.ECHO): State.PROBE,
} | {(state, side, Kind.FATE): state for state in State for side in Side}
"""Every legal frame: (state, who sends, kind) gives the next state. A fate is legal in each, once a side."""

_FIRST: Final = {Channel.CONTROL: State.DESCRIBE, Channel.ROWS: State.ROWS, Channel.PROBE: State.PROBE}


class Conversation:
    """One connection as both ends see it. `judge` is called for each header, heard or about to be sent."""

    __slots__ = ("_ended", "_next_part", "_rounds", "channel", "edge_back", "state")

    def __init__(self) -> None:
        self.state = State.DIALER_HELLO
        self.channel = Channel.CONTROL
        """Set by the owner once the hellos have named it, like `edge_back`."""
        self.edge_back = False
        """A rows channel from the last rank to rank 0."""
        self._rounds = [0, 0]
        """Last round, a side."""
        self._next_part = 0
        self._ended = [False, False]

    def ended(self, side: Side) -> bool:
        """`side` has sent a fate that ends the connection."""
        return self._ended[side]

    def end(self, side: Side) -> None:
        """`side` has sent a fate fail or stop: nothing more may follow from it."""
        self._ended[side] = True

    def last_round(self, side: Side) -> int:
        """The round of the last frame of `side` that had one."""
        return self._rounds[side]

    def judge(self, side: Side, header: Header) -> None:
        """Judge a header that `side` sends, in the order of wire.md 2, and move on to the next state.

        Raises ProtocolError `illegal_frame`, `too_long`, `truncated`, `round_order`, `reserved_not_zero`, `empty_rows`
        or `rows_length`.
        """
        following = TABLE.get((self.state, side, header.kind))
        if following is None or self._ended[side]:
            raise ProtocolError(ErrorCode.ILLEGAL_FRAME, self._why_illegal(side, header.kind), 6)
        judge_length(header)
        judge_roundless(header)
        self._judge_round(side, header)
        judge_rows(header)
        if header.kind is Kind.ROWS:
            self._judge_part(side, header)
            self._next_part = header.part + 1
        if header.round:
            self._rounds[side] = header.round
        if following is State.PROVED:
            following = State.RETURN if self.edge_back else _FIRST[self.channel]
        self.state = following

    def _judge_round(self, side: Side, header: Header) -> None:
        """Judge the round's number: never lower, and what a plan or probe that the other side sent allows."""
        kind, round_ = header.kind, header.round
        least = self._rounds[side]
        if kind is Kind.PLAN or kind is Kind.TOKENS:
            least += 1
        elif kind is Kind.ROWS:
            least = max(least, 1)
        if round_ < least and kind not in ROUNDLESS:
            raise ProtocolError(
                ErrorCode.ROUND_ORDER, f"round of a {kind.label} frame is {round_}, expected at least {least}", 8
            )
        asked = self._rounds[side.other]
        if (kind is Kind.DONE and round_ > asked) or (kind is Kind.ECHO and round_ != asked):
            what = "plan" if kind is Kind.DONE else "probe"
            raise ProtocolError(
                ErrorCode.ROUND_ORDER, f"round of a {kind.label} frame is {round_}, the last {what} had {asked}", 8
            )

    def _judge_part(self, side: Side, header: Header) -> None:
        """Judge a rows frame's part: 0, 1, 2 and so on in each round."""
        turn = self._next_part if header.round == self._rounds[side] else 0
        if header.part != turn:
            raise ProtocolError(
                ErrorCode.ROUND_ORDER, f"part of round {header.round} is {header.part}, expected {turn}", 20
            )

    def _why_illegal(self, side: Side, kind: Kind) -> str:
        if self._ended[side]:
            return f"a {kind.label} frame of the {side.name.lower()} after its fate"
        return f"a {kind.label} frame of the {side.name.lower()} while the connection waits for {self.state.label}"
