"""Lifeguard's two measures: a suspicion that others' confirmations shorten, and a member's doubt in its own health."""

from __future__ import annotations

from ropeway.cluster.swim.timing import Timing


class Suspicion:
    """How long a member has to refute: from `suspicion_max_s` by one accuser down to `suspicion_min_s` by k more.

    The number of living members is that of its beginning.
    """

    __slots__ = ("_accusers", "_began", "_living", "_sure", "_timing")

    def __init__(self, now: float, timing: Timing, living: int, accuser: bytes) -> None:
        self._began = now
        self._timing = timing
        self._living = living
        self._accusers = {accuser}
        self._sure = False

    def confirm(self, accuser: bytes) -> bool:
        """Another member suspects it too. True when that is news and worth passing on."""
        if accuser in self._accusers or self.confirmed >= self._timing.confirmations(self._living):
            return False
        self._accusers.add(accuser)
        return True

    def make_sure(self) -> None:
        """Somebody holds it dead: only the shortest time is left to refute."""
        self._sure = True

    def delay(self, by_s: float) -> None:
        """We were stopped for so long, and heard nothing meanwhile."""
        self._began += by_s

    @property
    def confirmed(self) -> int:
        """How many more accusers there are than the first."""
        return len(self._accusers) - 1

    def ends_at(self) -> float:
        """When the member is dead unless it refutes."""
        if self._sure:
            return self._began + self._timing.suspicion_min_s(self._living)
        return self._began + self._timing.suspicion_s(self._living, self.confirmed)


class Health:
    """The local health score, 0 (well) to awareness_max - 1: our probes take (score + 1) times as long."""

    __slots__ = ("_most", "score")

    def __init__(self, awareness_max: int) -> None:
        self.score = 0
        self._most = awareness_max - 1

    def worse(self, by: int = 1) -> None:
        """We may be the slow one: a probe failed and helpers kept silent, or we had to refute."""
        self.score = min(self._most, self.score + by)

    def better(self) -> None:
        """A probe was answered."""
        self.score = max(0, self.score - 1)

    @property
    def factor(self) -> int:
        """What our probe's interval and timeout are multiplied by."""
        return self.score + 1
