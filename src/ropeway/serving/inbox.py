"""Requests on their way from the front door's threads to the loop's thread, and which of them are still owed an end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ropeway.serving.chooser import Job
from ropeway.serving.sequence import Finish, Sequence
from ropeway.serving.service import FailedEvent, GenerateEvent, GenerateRequest, QueueFull, RingUnavailable

RETRY_AFTER_S: Final = 2
"""What a client is told to wait for when the queue is full, or the ring is not whole."""


@dataclass(frozen=True, slots=True)
class End:
    """Nobody wants the rest of a request."""

    request_id: int
    finish: Finish


class Inbox:
    """At most `limit` requests wait besides those that run. Any thread may call anything here.

    Every request that was taken in leaves once: by its last event, by `ended`, or by `close`, which tells it so; it
    hears nothing afterwards. None comes in while the inbox is closed. Events are told one at a time, from the loop's
    thread or the one that closes; who hears one may call anything here.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.wake = threading.Event()
        self._lock = threading.RLock()
        self._emptied = threading.Condition(self._lock)
        self._mail: deque[Job | End] = deque()
        self._jobs: dict[int, Job] = {}
        self._next_id = 0
        self._closed: str | None = None
        """Why nobody may come in."""

    @property
    def live(self) -> int:
        """Requests that have not ended."""
        return len(self._jobs)

    def submit(self, request: GenerateRequest, running: int, on_event: Callable[[GenerateEvent], None]) -> int:
        """Queue a request; gives its id. `running` requests may be live beside the queue.

        Raises RingUnavailable, QueueFull, or ValueError with the name of a field that no ring could serve.
        """
        if not request.prompt:
            raise ValueError("prompt: it has no tokens")
        if request.max_tokens < 1:
            raise ValueError(f"max_tokens: {request.max_tokens} is not at least 1")
        with self._lock:
            if self._closed is not None:
                raise RingUnavailable(self._closed, RETRY_AFTER_S)
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

    def tell(self, job: Job, event: GenerateEvent, *, last: bool = False) -> bool:
        """Tell a request of something; with `last` it has left, and its place is free, before it hears that.

        False where it has left already: it hears nothing.
        """
        with self._lock:
            if job.sequence.id not in self._jobs:
                return False
            if last:
                self.ended(job.sequence.id)
            job.on_event(event)
            return True

    def ended(self, request_id: int) -> None:
        """A request wants to hear no more."""
        with self._lock:
            self._jobs.pop(request_id, None)
            if not self._jobs:
                self._emptied.notify_all()

    def open(self) -> None:
        """There is a ring again: let requests in, and those that were held go on first. For the loop's thread."""
        with self._lock:
            self._closed = None
            mailed = {mail.sequence.id for mail in self._mail if isinstance(mail, Job)}
            for number in sorted(self._jobs.keys() - mailed, reverse=True):
                self._jobs[number].go_on()
                self._mail.appendleft(self._jobs[number])
        self.wake.set()

    def hold(self, why: str) -> None:
        """Let none in, and keep those that another ring can go on with; the others end with a FailedEvent."""
        with self._lock:
            self._closed = why
            failed = [job for job in self._jobs.values() if not job.can_go_on]
            for job in failed:
                del self._jobs[job.sequence.id]
            if not self._jobs:
                self._emptied.notify_all()
        for job in failed:
            job.on_event(FailedEvent(why))

    def close(self, why: str) -> None:
        """End every request with a FailedEvent, and let none in: the ring that should have served them is gone."""
        with self._lock:
            self._closed = why
            failed = list(self._jobs.values())
            self._jobs.clear()
            self._mail.clear()
            self._emptied.notify_all()
        for job in failed:
            job.on_event(FailedEvent(why))

    def wait_empty(self, limit_s: float) -> None:
        """Until no request is left, or `limit_s` have passed."""
        with self._lock:
            self._emptied.wait_for(lambda: not self._jobs, limit_s)
