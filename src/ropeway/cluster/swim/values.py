"""The nouns of membership: what a member says of itself, what others claim of it, and what is believed.

A member's id is the public key of its endpoint (32 bytes): a connection proves it, so nobody can speak as another.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Protocol, TypeVar

ID_BYTES: Final = 32
LABEL_BYTES: Final = 63
ADDRESS_BYTES: Final = 255
SEAL_BYTES: Final = 64
U32_MAX: Final = 0xFFFFFFFF
TIME_MAX: Final = (1 << 62) - 1
"""Largest start, logical time and generation: so that one more always fits."""

T = TypeVar("T")


class State(IntEnum):
    """What is believed of a member. The order is the precedence at equal start and incarnation."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3

    @property
    def label(self) -> str:
        """Lower-case name."""
        return self.name.lower()

    @property
    def living(self) -> bool:
        """Alive, or suspected and not yet given up."""
        return self <= State.SUSPECT


Rank = tuple[int, int, State]
"""(start, incarnation, state): of two beliefs about a member the greater one holds (docs/membership.md, Precedence)."""


@dataclass(frozen=True, slots=True)
class Contact:
    """A member to come in by, such as a ticket names it: its id, and how to dial it."""

    member: bytes
    address: bytes = b""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a member says of itself. Only it makes them, and where the cluster seals them nobody else can.

    `start` is when its process began, in milliseconds of its own clock; a later start is a new life. `incarnation`
    rises with every statement of one life. `label` is for people; `address` is for whoever dials (opaque here).
    """

    member: bytes
    start: int
    incarnation: int = 0
    label: str = ""
    address: bytes = b""
    left: bool = False
    seal: bytes = b""

    def __post_init__(self) -> None:
        if len(self.member) != ID_BYTES:
            raise ValueError(f"member: an id of {len(self.member)} bytes, expected {ID_BYTES}")
        if not 0 <= self.start <= TIME_MAX:
            raise ValueError(f"start: {self.start} is outside 0..{TIME_MAX}")
        if not 0 <= self.incarnation <= U32_MAX:
            raise ValueError(f"incarnation: {self.incarnation} is outside 0..{U32_MAX}")
        if len(self.label.encode()) > LABEL_BYTES:
            raise ValueError(f"label: {self.label!r} has more than {LABEL_BYTES} bytes")
        if not self.label.isprintable():
            raise ValueError(f"label: {self.label!r} has characters that cannot be printed")
        if len(self.address) > ADDRESS_BYTES:
            raise ValueError(f"address: {len(self.address)} bytes, at most {ADDRESS_BYTES}")
        if len(self.seal) not in (0, SEAL_BYTES):
            raise ValueError(f"seal: {len(self.seal)} bytes, expected {SEAL_BYTES} or none")

    @property
    def state(self) -> State:
        """Alive or left."""
        return State.LEFT if self.left else State.ALIVE

    @property
    def rank(self) -> Rank:
        """Its precedence."""
        return self.start, self.incarnation, self.state


@dataclass(frozen=True, slots=True)
class Claim:
    """What `by` says of another member: suspect or dead, in the life of that `start`, at that incarnation."""

    member: bytes
    start: int
    incarnation: int
    state: State
    by: bytes

    @property
    def rank(self) -> Rank:
        """Its precedence."""
        return self.start, self.incarnation, self.state


@dataclass(frozen=True, slots=True)
class Member:
    """What is believed of a member: its last statement, and its state at `incarnation` since `since` as said by `by`.

    `by` is the member itself where it is alive or has left. `since` is a time of the clock that the core is given.
    """

    statement: Statement
    state: State
    incarnation: int
    by: bytes
    since: float

    @property
    def id(self) -> bytes:
        """Its key."""
        return self.statement.member

    @property
    def label(self) -> str:
        """Its label, for people; two members may have the same."""
        return self.statement.label

    @property
    def address(self) -> bytes:
        """How to dial it."""
        return self.statement.address

    @property
    def start(self) -> int:
        """When its life began: the generation of the names that it registers."""
        return self.statement.start

    @property
    def rank(self) -> Rank:
        """The precedence of what is believed."""
        return self.start, self.incarnation, self.state


class Draws(Protocol):
    """Randomness, given from outside: `random.Random` is one."""

    def random(self) -> float:
        """A number in 0..1."""

    def randrange(self, start: int, /) -> int:
        """An integer in 0..start."""

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        """Bring a list into random order."""

    def sample(self, population: Sequence[T], k: int) -> list[T]:
        """k different elements."""


class Seal(Protocol):
    """A member's own signature under what it says, and the check of another's (Ed25519 where ids are such keys)."""

    def sign(self, said: bytes) -> bytes:
        """64 bytes under `said`, by this member's key."""

    def holds(self, member: bytes, said: bytes, seal: bytes) -> bool:
        """Whether `member`'s key made `seal` under `said`. `seal` has 64 bytes, or none where it was left out."""


class Unsealed:
    """No signatures: statements passed on by a third member are believed. For tests, and closed machines."""

    def sign(self, said: bytes) -> bytes:
        """Nothing."""
        return b""

    def holds(self, member: bytes, said: bytes, seal: bytes) -> bool:
        """Everything without a seal."""
        return not seal
