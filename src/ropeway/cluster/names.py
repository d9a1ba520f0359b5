"""Names that lead to members: last writer wins on (logical time, generation, node), and tombstones for what is gone.

Knows nothing of packets; who is alive is an argument. A name leads to its node while that node is alive in the life
that registered it: so a dead node's names go, and come back if the same process is heard again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

NAME_BYTES: Final = 63
VALUE_BYTES: Final = 128
NAMES_PER_NODE: Final = 256
"""Most names that a node's entries may hold, tombstones among them; more are not taken in."""
NAMES_MOST: Final = 8_192
"""Most entries that are held of all nodes together; more are not taken in."""
TIME_MAX: Final = (1 << 62) - 1

Stamp = tuple[int, int, bytes]
"""(logical time, generation, node): the greater one wins."""
Alive = Callable[[bytes, int], bool]
"""Whether a node is alive in the life of that generation."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`name` leads to `node`, or, not `live`, has been unregistered by it.

    `time` is the writer's logical clock, `generation` the start of the writer's life. `value` says more about the name
    (which ring, which port) and is opaque here. `seal` is the writer's signature, or empty.
    """

    name: str
    time: int
    generation: int
    node: bytes
    live: bool = True
    value: bytes = b""
    seal: bytes = b""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.encode()) <= NAME_BYTES:
            raise ValueError(f"name: {self.name!r} must have 1 to {NAME_BYTES} bytes")
        if not self.name.isprintable():
            raise ValueError(f"name: {self.name!r} has characters that cannot be printed")
        if len(self.value) > VALUE_BYTES:
            raise ValueError(f"value: {len(self.value)} bytes, at most {VALUE_BYTES}")
        if not 0 <= self.time <= TIME_MAX:
            raise ValueError(f"time: {self.time} is outside 0..{TIME_MAX}")

    @property
    def stamp(self) -> Stamp:
        """Its precedence."""
        return self.time, self.generation, self.node


@dataclass(frozen=True, slots=True)
class Held:
    """An entry, and since when (by our clock) it has been what it is: a tombstone's age counts from there."""

    entry: Entry
    since: float


class Names:
    """One node's copy of all names. `version` rises with every change; the owner empties `changed`."""

    __slots__ = ("_clock", "_counts", "_expire_at", "_held", "_tombstone_s", "changed", "version")

    def __init__(self, tombstone_s: float = 3_600.0) -> None:
        self.changed: set[str] = set()
        self.version = 0
        self._held: dict[str, Held] = {}
        self._counts: Counter[bytes] = Counter()
        self._expire_at = math.inf
        self._clock = 0
        self._tombstone_s = tombstone_s

    @property
    def clock(self) -> int:
        """The logical time: never below any that was seen."""
        return self._clock

    def write(self, now: float, entry: Entry) -> Entry:
        """Write an entry of our own, at the next logical time, which is filled in.

        Raises ValueError when the clock is at its end.
        """
        if self._clock >= TIME_MAX:
            raise ValueError("time: the cluster's logical clock is at its end")
        written = replace(entry, time=self._clock + 1)
        self._clock = written.time
        self._hold(Held(written, now))
        return written

    def seal(self, entry: Entry) -> None:
        """Put the signed form of an entry in the place of the unsigned one."""
        held = self._held[entry.name]
        self._hold(Held(entry, held.since))

    def merge(self, now: float, entry: Entry, age_s: float = 0.0) -> bool:
        """Take in another's entry, `age_s` old if it is a tombstone. True when it won and is to be passed on."""
        self._clock = max(self._clock, entry.time)
        held = self._held.get(entry.name)
        if held is not None and held.entry.stamp >= entry.stamp:
            return False
        if not entry.live and age_s >= self._tombstone_s:
            return False
        if (held is None or held.entry.node != entry.node) and self._counts[entry.node] >= NAMES_PER_NODE:
            return False
        if held is None and len(self._held) >= NAMES_MOST:
            return False
        self._hold(Held(entry, now - age_s))
        return True

    def resolve(self, name: str, alive: Alive) -> Entry | None:
        """The entry that a name leads to now, or None."""
        held = self._held.get(name)
        if held is None or not held.entry.live or not alive(held.entry.node, held.entry.generation):
            return None
        return held.entry

    def get(self, name: str) -> Held | None:
        """What is held of a name, dead or alive."""
        return self._held.get(name)

    def held(self) -> Iterator[Held]:
        """All that is held."""
        return iter(self._held.values())

    def of(self, node: bytes) -> list[str]:
        """The names whose last writer is `node`."""
        return [name for name, held in self._held.items() if held.entry.node == node]

    def drop_lives(self, node: bytes, start: int) -> None:
        """`node` has begun a life at `start`: what earlier ones registered goes; tombstones stay."""
        for name in self.of(node):
            entry = self._held[name].entry
            if entry.live and entry.generation < start:
                self._drop(name)

    def drop_node(self, node: bytes) -> None:
        """`node` is forgotten: all that it registered goes; tombstones stay."""
        for name in self.of(node):
            if self._held[name].entry.live:
                self._drop(name)

    def expire(self, now: float) -> None:
        """Let go of tombstones that are too old."""
        if now < self._expire_at:
            return
        old = [name for name, held in self._held.items() if not held.entry.live and self._ends_at(held) <= now]
        for name in old:
            self._drop(name)
        self._expire_at = min(
            (self._ends_at(held) for held in self._held.values() if not held.entry.live), default=math.inf
        )

    def next_at(self) -> float:
        """When to call `expire`: not later than the next tombstone is too old; infinity without one."""
        return self._expire_at

    def _hold(self, held: Held) -> None:
        before = self._held.get(held.entry.name)
        if before is not None:
            self._count(before.entry.node, -1)
        self._count(held.entry.node, 1)
        if not held.entry.live:
            self._expire_at = min(self._expire_at, self._ends_at(held))
        self._held[held.entry.name] = held
        self.changed.add(held.entry.name)
        self.version += 1

    def _drop(self, name: str) -> None:
        self._count(self._held.pop(name).entry.node, -1)
        self.changed.add(name)
        self.version += 1

    def _count(self, node: bytes, by: int) -> None:
        self._counts[node] += by
        if not self._counts[node]:
            del self._counts[node]

    def _ends_at(self, held: Held) -> float:
        return held.since + self._tombstone_s
