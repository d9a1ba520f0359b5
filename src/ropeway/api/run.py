"""A generation's course: its tokens to whoever writes the reply, its counts and times to usage and metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from ropeway.api.bridge import Generation
from ropeway.api.errors import bad_request
from ropeway.api.jobs import Job
from ropeway.api.metrics import Metrics
from ropeway.api.replies import FinishReason, Usage, usage
from ropeway.serving.service import PromptEvent, TokenEvent


class Progress:
    """Counts of one API request. `arrived` is time.monotonic() when it came."""

    def __init__(self, metrics: Metrics, job: Job, arrived: float) -> None:
        self._metrics = metrics
        self._job = job
        self._arrived = arrived
        self._last: dict[int, float] = {}
        self._cached: dict[int, int] = {}
        self._made = 0
        self.prompts: dict[int, PromptEvent] = {}

    def prompt_read(self, index: int, event: PromptEvent) -> None:
        """The prompt of the sequence `index` has been read."""
        self.prompts[index] = event
        self._cached[index] = event.cached_tokens
        self._metrics.prompt_tokens.inc(len(self._job.requests[index].prompt))
        self._metrics.cached_tokens.inc(event.cached_tokens)

    def token(self, index: int) -> None:
        """A token of the sequence `index` has come."""
        now = time.monotonic()
        if index in self._last:
            self._metrics.between_tokens_s.observe(now - self._last[index])
        else:
            self._metrics.first_token_s.observe(now - self._arrived)
        self._last[index] = now
        self._made += 1
        self._metrics.made_tokens.inc()

    def finished(self, index: int, finish: FinishReason) -> None:
        """The sequence `index` is complete. Raises ApiError (400) when its grammar could not be followed to its end."""
        constraint = self._job.constraints[index]
        if constraint is not None and constraint.error and finish != "length":
            raise bad_request(f"The grammar could not be followed: {constraint.error}.", None, "grammar_failed")
        self._metrics.finished.labels(finish).inc()

    def usage(self, *, shown: bool = True) -> Usage:
        """A prompt counts once however many choices it has, and so do its rows from the prompt cache."""
        prompts = self._job.prompts
        choices = len(self._job.requests) // len(prompts)
        read = sum(map(len, prompts))
        cached = sum(self._cached.get(at * choices, 0) for at in range(len(prompts)))
        return usage(read, self._made if shown else 0, cached)


async def progress(generation: Generation, counts: Progress) -> AsyncIterator[tuple[int, TokenEvent]]:
    """The generation's tokens, counted."""
    async for index, event in generation.events():
        if isinstance(event, PromptEvent):
            counts.prompt_read(index, event)
        else:
            counts.token(index)
            yield index, event
