"""The cluster, the instances and our own mail, looked at together while a step waits for something."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NoReturn

from ropeway.cluster.messages import InferenceResponse
from ropeway.smoke.cluster import Cluster, Inbox
from ropeway.smoke.renting import Rental
from ropeway.smoke.steps import Deadline, StepFailed

LOOK_S: Final = 0.1
EXPLAIN_S: Final = 1.5
"""How long the first sign of trouble waits for others: which node was lost says more than what its neighbour saw."""


class Watch:
    """What a run waits for, and what ends the wait. `count` stages are to be there."""

    def __init__(self, cluster: Cluster, inbox: Inbox, rental: Rental, count: int) -> None:
        self._cluster = cluster
        self._inbox = inbox
        self._rental = rental
        self._count = count
        self._errors: list[str] = []

    @property
    def members(self) -> int:
        """Nodes that are there, this one included."""
        return sum(member.state in ("alive", "suspect") for member in self._cluster.members())

    def missing_members(self) -> str:
        """For a message."""
        return f"{self.members} of {self._count + 1} nodes have joined, and the others did not"

    def missing(self, names: list[str]) -> list[str]:
        """Those of `names` that nobody has."""
        known = self._cluster.names()
        return [name for name in names if name not in known]

    def until(self, true: Callable[[], bool], deadline: Deadline, waiting_for: Callable[[], str]) -> None:
        """Wait. Raises StepFailed at the deadline, and at once for a node that is lost, or that says it failed."""
        while not true():
            if self._look(0.0) is not None:
                raise StepFailed("an answer came that nobody had asked for")
            deadline.pause(LOOK_S, waiting_for())

    def reply(self, deadline: Deadline) -> InferenceResponse:
        """The answer. Raises StepFailed as `until`, and where the answer is an error."""
        while (response := self._look(LOOK_S)) is None:
            deadline.check("the reply did not come")
        return response

    def _look(self, wait_s: float) -> InferenceResponse | None:
        """One look at everything; an answer that has come within `wait_s`. Raises StepFailed."""
        response = self._read(wait_s)
        if self._errors or self._lost():
            self._explain()
        if response is not None:
            return response
        if self.members > self._count + 1:
            raise StepFailed(f"{self.members} nodes have joined, and the run has only {self._count + 1}")
        self._rental.check()
        return None

    def _read(self, wait_s: float) -> InferenceResponse | None:
        """The next message within `wait_s`; those that say what went wrong are put aside."""
        try:
            message = self._inbox.receive(wait_s)
        except TimeoutError:
            return None
        if not isinstance(message, InferenceResponse):
            return None
        if not message.error:
            return message
        if message.error not in self._errors:
            self._errors.append(message.error)
        return None

    def _lost(self, *, left: bool = True) -> list[str]:
        """Nodes that are gone, by name."""
        states = ("dead", "left") if left else ("dead",)
        gone = [member for member in self._cluster.members() if member.state in states and not member.here]
        return [f"{m.label or m.node[:16]} was lost: the cluster says it is {m.state}" for m in gone]

    def _explain(self) -> NoReturn:
        """Something is wrong: gather what there is to say about it, and raise that."""
        give_up = time.monotonic() + EXPLAIN_S
        while time.monotonic() < give_up:
            self._read(LOOK_S)
        said = [*self._lost(left=not self._errors), *self._errors]
        raise StepFailed("; ".join(said))
