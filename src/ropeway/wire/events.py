"""What a link hears: one frozen event a frame that means something to its owner."""

from __future__ import annotations

from dataclasses import dataclass

from ropeway.wire.boot import Describe, Ready
from ropeway.wire.hello import Hello
from ropeway.wire.plan import Plan
from ropeway.wire.results import Done, Fate, Tokens


@dataclass(frozen=True, slots=True)
class HelloDone:
    """Both proofs have passed: this is who is across. Send what `Link.outgoing` still holds."""

    peer: Hello


@dataclass(frozen=True, slots=True)
class Described:
    """A stage has described itself; rank 0 checks it with `check_description`."""

    describe: Describe


@dataclass(frozen=True, slots=True)
class ReadyHeard:
    """A stage is ready; plans may follow."""

    ready: Ready


@dataclass(frozen=True, slots=True)
class PlanHeard:
    """Rank 0 has sent a plan."""

    round: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class RowsHeard:
    """Rows have arrived, in the memory that the owner lent."""

    round: int
    part: int
    rows: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class TokensHeard:
    """The last rank has sent a round's tokens."""

    round: int
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class DoneHeard:
    """A stage has ended a round, or answers a keep-alive (then `round` is one that it ended before, or 0)."""

    round: int
    done: Done


@dataclass(frozen=True, slots=True)
class FateHeard:
    """The peer has said how the ring ends. Unless `proved`, it may be a stranger and ends this connection only."""

    fate: Fate
    proved: bool


@dataclass(frozen=True, slots=True)
class ProbeHeard:
    """A probe of `payload_bytes` has arrived; answer with `Link.send_echo`."""

    round: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class EchoHeard:
    """The probe of this number has been answered."""

    round: int


Event = (
    HelloDone
    | Described
    | ReadyHeard
    | PlanHeard
    | RowsHeard
    | TokensHeard
    | DoneHeard
    | FateHeard
    | ProbeHeard
    | EchoHeard
)
