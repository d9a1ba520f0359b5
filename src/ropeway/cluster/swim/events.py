"""What the core tells its owner: packets to send, and what has changed."""

from __future__ import annotations

from dataclasses import dataclass

from ropeway.cluster.names import Entry
from ropeway.cluster.swim.errors import Fault
from ropeway.cluster.swim.values import Member


@dataclass(frozen=True, slots=True)
class Send:
    """A datagram of at most 1,200 bytes for the member `to`; may be lost. `address` is its last known one, or empty."""

    to: bytes
    address: bytes
    packet: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """A member is alive that was not known, or that has begun a new life."""

    member: Member


@dataclass(frozen=True, slots=True)
class Updated:
    """A living member has another label or address."""

    member: Member


@dataclass(frozen=True, slots=True)
class Suspected:
    """A member did not answer; it has until its suspicion ends to say otherwise."""

    member: Member


@dataclass(frozen=True, slots=True)
class Recovered:
    """A member that was suspected or dead is alive: the same life, so its names are back too."""

    member: Member


@dataclass(frozen=True, slots=True)
class Died:
    """A member's suspicion has ended without an answer."""

    member: Member


@dataclass(frozen=True, slots=True)
class Left:
    """A member has left by its own word."""

    member: Member


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A dead or left member is no longer kept."""

    member: Member


@dataclass(frozen=True, slots=True)
class NameSet:
    """A name now leads to this entry's node."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class NameGone:
    """A name leads nowhere now: unregistered, or its node is not alive."""

    name: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The member `by` refuses to let us join."""

    by: bytes
    fault: Fault


@dataclass(frozen=True, slots=True)
class Outlived:
    """Somebody speaks of a later life of our own key than this one: a clock went back, or the key runs twice.

    We have begun another life above it. Where this comes again and again, the key runs on two machines.
    """

    start: int


Event = Joined | Updated | Suspected | Recovered | Died | Left | Forgotten | NameSet | NameGone | Refused | Outlived
