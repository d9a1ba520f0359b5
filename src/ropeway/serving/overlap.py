"""How many stages work side by side, against what the same rounds could reach. No clock is read.

n parts on s stages take at least the sum of the stages' times for a part, and n - 1 times the slowest of them; and
whatever is under way, no stage is done sooner than its own forwards take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ropeway.serving.underway import RoundRecord


@dataclass(frozen=True, slots=True)
class Overlap:
    """While rounds were under way: stages that computed at once on average, and how many of them could have."""

    at_work: float
    possible: float

    @property
    def efficiency(self) -> float:
        """The share of the ideal, 0 to 1."""
        return min(1.0, self.at_work / self.possible)


@dataclass(frozen=True, slots=True)
class Trip:
    """A round that brought something back, with those before it that brought nothing: a prompt's earlier rows."""

    launched_ns: int
    landed_ns: int
    parts: int
    forward_ns: tuple[int, ...]
    """By rank, the head left out."""
    head_ns: int

    @property
    def least_ns(self) -> float:
        """What it takes where no part waits for anything but the part before it and the stage before it."""
        return (sum(self.forward_ns) + (self.parts - 1) * max(self.forward_ns)) / self.parts + self.head_ns


def trips(records: Iterable[RoundRecord], world: int) -> list[Trip]:
    """Those that have landed and of which every stage has reported; `records` are a loop's, in order."""
    found: list[Trip] = []
    rounds: list[RoundRecord] = []
    for record in records:
        if not record.rows:
            continue
        if not record.landed_ns:
            break
        rounds.append(record)
        if record.unseen:
            continue
        if all(len(one.dones) == world - 1 for one in rounds):
            found.append(_trip(rounds, world))
        rounds = []
    return found


def _trip(rounds: Sequence[RoundRecord], world: int) -> Trip:
    forwards = [sum(one.own_ns for one in rounds)]
    forwards += [sum(one.dones[rank].forward_ns for one in rounds) for rank in range(1, world)]
    return Trip(
        rounds[0].launched_ns,
        rounds[-1].landed_ns,
        sum(one.parts for one in rounds),
        tuple(forwards),
        sum(one.head_ns for one in rounds),
    )


def overlap(records: Iterable[RoundRecord], world: int, since_ns: int) -> Overlap | None:
    """Of the trips that have landed since; None where there was none."""
    done = [trip for trip in trips(records, world) if trip.landed_ns >= since_ns]
    under_way_ns = _covered(done)
    stage_ns = [sum(trip.forward_ns[rank] for trip in done) for rank in range(world)]
    stage_ns[0] += sum(trip.head_ns for trip in done)
    if not under_way_ns or not sum(stage_ns):
        return None
    least = sum(trip.least_ns for trip in done) / sum(trip.landed_ns - trip.launched_ns for trip in done)
    ideal_ns = max(max(stage_ns), under_way_ns * min(1.0, least))
    return Overlap(sum(stage_ns) / under_way_ns, sum(stage_ns) / ideal_ns)


def _covered(done: Iterable[Trip]) -> int:
    """Nanoseconds in which at least one was under way."""
    total = until = 0
    for trip in sorted(done, key=lambda trip: trip.launched_ns):
        total += max(0, trip.landed_ns - max(until, trip.launched_ns))
        until = max(until, trip.landed_ns)
    return total
