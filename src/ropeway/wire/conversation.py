"""The state of one connection (wire.md 3): one transition table, and the judgement of every header by it.

Reader and writer use the same object, and it does not know which side it is on: each frame is judged with the side
that sends it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.frames import Channel, Header, Kind, judge_length, judge_rows
from ropeway.wire.hello import Side


class State(Enum):
    """What the connection waits for."""

    DIALER_HELLO = auto()
    ACCEPTOR_HELLO = auto()
    DIALER_PROOF = auto()
    ACCEPTOR_PROOF = auto()
    PROVED = auto()
    """Both proofs have passed; replaced at once by the channel's first state."""
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
"""Every legal frame: (state, who sends, kind) gives the next state. A fate is legal in each, until its sender has ended."""

_FIRST: Final = {Channel.CONTROL: State.DESCRIBE, Channel.ROWS: State.ROWS, Channel.PROBE: State.PROBE}
_UNPROVED: Final = (State.DIALER_HELLO, State.ACCEPTOR_HELLO, State.DIALER_PROOF, State.ACCEPTOR_PROOF)
_ROUNDLESS: Final = (Kind.HELLO, Kind.PROOF, Kind.DESCRIBE, Kind.READY, Kind.FATE)


class Conversation:
    """One connection as both ends see it. `judge` is called for each header, heard or about to be sent."""

    __slots__ = ("_ended", "_parts", "_rounds", "channel", "edge_back", "state")

    def __init__(self) -> None:
        self.state = State.DIALER_HELLO
        self.channel = Channel.CONTROL
        """Set by the owner once the hellos have named it, like `edge_back`."""
        self.edge_back = False
        """A rows channel from the last rank to rank 0."""
        self._rounds = {Side.DIALER: 0, Side.ACCEPTOR: 0}
        self._parts = 0
        self._ended: set[Side] = set()

    @property
    def proved(self) -> bool:
        """Both proofs have passed."""
        return self.state not in _UNPROVED

    def ended(self, side: Side) -> bool:
        """`side` has sent a fate that ends the connection."""
        return side in self._ended

    def end(self, side: Side) -> None:
        """`side` has sent a fate fail or stop: nothing more may follow from it."""
        self._ended.add(side)

    def last_round(self, side: Side) -> int:
        """The round of the last frame of `side` that had one."""
        return self._rounds[side]

    def judge(self, side: Side, header: Header) -> None:
        """Judge a header that `side` sends, in the order of wire.md 2, and move on to the next state.

        Raises ProtocolError `illegal_frame`, `too_long`, `truncated`, `round_order`, `reserved_not_zero`, `empty_rows`.
        """
        following = TABLE.get((self.state, side, header.kind))
        if following is None or side in self._ended:
            raise ProtocolError(ErrorCode.ILLEGAL_FRAME, self._why_illegal(side, header.kind), 6)
        judge_length(header)
        self._judge_round(side, header)
        judge_rows(header)
        if following is State.PROVED:
            following = State.RETURN if self.edge_back else _FIRST[self.channel]
        self.state = following

    def _judge_round(self, side: Side, header: Header) -> None:
        """Judge the round number and, in rows frames, the part's turn; remember both."""
        kind, round_ = header.kind, header.round
        if kind in _ROUNDLESS:
            if round_:
                raise ProtocolError(ErrorCode.ROUND_ORDER, f"round of a {kind.label} frame is {round_}, expected 0", 8)
            return
        last = self._rounds[side]
        least = last + 1 if kind is Kind.PLAN else last
        if round_ < least:
            raise ProtocolError(
                ErrorCode.ROUND_ORDER, f"round of a {kind.label} frame is {round_}, expected at least {least}", 8
            )
        if kind is Kind.DONE or kind is Kind.ECHO:
            self._judge_answer(side, header)
        elif kind is Kind.ROWS:
            turn = self._parts if round_ == last else 0
            if header.part != turn:
                raise ProtocolError(
                    ErrorCode.ROUND_ORDER, f"part of round {round_} is {header.part}, expected {turn}", 20
                )
            self._parts = turn + 1
        self._rounds[side] = round_

    def _judge_answer(self, side: Side, header: Header) -> None:
        """A done names no later round than the last plan; an echo repeats its probe's."""
        asked = self._rounds[side.other]
        if header.round > asked or (header.kind is Kind.ECHO and header.round != asked):
            what = "plan" if header.kind is Kind.DONE else "probe"
            raise ProtocolError(
                ErrorCode.ROUND_ORDER,
                f"round of a {header.kind.label} frame is {header.round}, the last {what} had {asked}",
                8,
            )

    def _why_illegal(self, side: Side, kind: Kind) -> str:
        if side in self._ended:
            return f"a {kind.label} frame of the {side.name.lower()} after its fate"
        return f"a {kind.label} frame of the {side.name.lower()} while the connection waits for {self.state.label}"
