"""Requests on their way from the front door's threads to the loop's thread, and which of them are still owed an end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ropeway.serving.chooser import Job
from ropeway.serving.sequence import Finish, Sequence
from ropeway.serving.service import FailedEvent, GenerateEvent, GenerateRequest, QueueFull

RETRY_AFTER_S = 2
"""What a client is told to wait for when the queue is full."""


@dataclass(frozen=True, slots=True)
class End:
    """Nobody wants the rest of a request."""

    request_id: int
    finish: Finish


class Inbox:
    """At most `limit` requests wait besides those that run. Any thread may call anything here."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.wake = threading.Event()
        self._lock = threading.Lock()
        self._mail: deque[Job | End] = deque()
        self._jobs: dict[int, Job] = {}
        self._next_id = 0

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._jobs)

    def jobs(self) -> list[Job]:
        """Those that have not ended, oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def submit(self, request: GenerateRequest, running: int, on_event: Callable[[GenerateEvent], None]) -> int:
        """Queue a request; gives its id. `running` requests may be live beside the queue. Raises QueueFull."""
        with self._lock:
            if len(self._jobs) >= running + self.limit:
                raise QueueFull(f"{self.limit} requests are waiting already; try again soon", RETRY_AFTER_S)
            number = self._next_id
            self._next_id += 1
            sequence = Sequence(
                number,
                request.prompt,
                request.max_tokens,
                request.params,
                request.stop_ids,
                every_row=request.prompt_logprobs,
            )
            job = Job(request, sequence, on_event, time.perf_counter_ns())
            self._jobs[number] = job
            self._mail.append(job)
        self.wake.set()
        return number

    def end(self, request_id: int, finish: Finish) -> None:
        """Ask for a request's end; unknown or ended ids are let be."""
        with self._lock:
            if request_id not in self._jobs:
                return
            self._mail.append(End(request_id, finish))
        self.wake.set()

    def take(self) -> list[Job | End]:
        """What has come, in order."""
        if not self._mail:
            return []
        with self._lock:
            taken = list(self._mail)
            self._mail.clear()
        return taken

    def ended(self, request_id: int) -> None:
        """A request has had its last event, or wants none."""
        with self._lock:
            self._jobs.pop(request_id, None)

    def fail_all(self, text: str) -> None:
        """End every request with a FailedEvent: the ring that should have served them is gone."""
        with self._lock:
            failed = list(self._jobs.values())
            self._jobs.clear()
            self._mail.clear()
        for job in failed:
            job.on_event(FailedEvent(text))
