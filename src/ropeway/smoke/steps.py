"""The steps of a run, each with a deadline of its own inside the total, each named in the result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ropeway.smoke.attention import Attention
from ropeway.smoke.clock import elapsed

LIMITS_S: Final[Mapping[str, float]] = {
    "search": 60.0,
    "node": 30.0,
    "create": 120.0,
    "running": 600.0,
    "converge": 120.0,
    "workers": 180.0,
    "names": 60.0,
    "reply": 300.0,
    "destroy": 120.0,
}
"""The steps in their order, and how long each may take; `destroy` is not inside the total."""


class StepFailed(Exception):
    """A step has not done what it is for; the text is for people. `instance` is the one whose log may say why."""

    def __init__(self, text: str, instance: int | None = None) -> None:
        super().__init__(text)
        self.instance = instance


@dataclass(frozen=True, slots=True)
class StepDone:
    """One step of the result."""

    name: str
    seconds: float
    ok: bool


class Deadline:
    """When a step must be done: at its own limit or at the total's, whichever comes first."""

    def __init__(self, step: str, limit_s: float, total_until: float, clock: Callable[[], float]) -> None:
        self.step = step
        now = clock()
        self._clock = clock
        self._own = now + limit_s <= total_until
        self._limit_s = limit_s
        self._until = min(now + limit_s, total_until)

    @property
    def left(self) -> float:
        """Seconds until then, never less than 0."""
        return max(0.0, self._until - self._clock())

    def check(self, waiting_for: str) -> None:
        """Raise StepFailed, naming what did not come, once it has passed."""
        if self.left <= 0:
            limit = f"within {self._limit_s:g} s" if self._own else "before the run's --timeout"
            raise StepFailed(f"{waiting_for} {limit}")

    def pause(self, seconds: float, waiting_for: str) -> None:
        """Sleep, at most until then; signals raise as everywhere in a step. Raises StepFailed as `check`."""
        self.check(waiting_for)
        time.sleep(min(seconds, self.left))


class Steps:
    """Runs steps one after another and keeps the record. `told` hears of each that begins."""

    def __init__(
        self,
        total_s: float,
        limits_s: Mapping[str, float],
        attention: Attention,
        told: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self._limits_s = {**LIMITS_S, **limits_s}
        self._attention = attention
        self._told = told
        self._clock = clock
        self._until = clock() + total_s
        self.done: list[StepDone] = []
        self.failed = ""
        """The step that failed, if one has."""

    def limit(self, name: str) -> float:
        """Seconds that a step may take."""
        return self._limits_s[name]

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Deadline]:
        """Be in a step: signals may raise inside, but for `hold`."""
        started = self._clock()
        ok = False
        self._told(name)
        try:
            with self._attention.open():
                yield Deadline(name, self._limits_s[name], self._until, self._clock)
            ok = True
        finally:
            if not ok:
                self.failed = self.failed or name
            self.done.append(StepDone(name, self._clock() - started, ok))

    @contextlib.contextmanager
    def teardown(self) -> Iterator[Deadline]:
        """The last step, which has a limit of its own outside the total, and which no signal ends."""
        started = self._clock()
        self._told("destroy")
        limit_s = self._limits_s["destroy"]
        try:
            yield Deadline("destroy", limit_s, started + limit_s, self._clock)
        finally:
            self.done.append(StepDone("destroy", self._clock() - started, True))

    def hold(self) -> contextlib.AbstractContextManager[None]:
        """Inside a step: a call that no signal may cut in two. The signal raises behind it."""
        return self._attention.closed()
