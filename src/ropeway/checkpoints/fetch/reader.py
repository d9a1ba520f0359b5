"""One file read from several sources: the nearest that has the bytes, with patience, and on to the next that has them.

Every byte goes to the sink exactly once; a source that fails half-way is gone on from where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.ranges import held_until, next_start
from ropeway.checkpoints.fetch.source import FileFacts, Sink, Source, SourceError

T = TypeVar("T")

SKIPPED_BYTES: Final = 1024
"""Fewer bytes that a nearer source has in the middle of a range are read again, for less than another request costs."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often in a row a source may fail without giving a byte, and the pauses between: doubling, up to a limit."""

    tries: int = 6
    first_s: float = 0.5
    longest_s: float = 20.0
    sleep: Callable[[float], None] = time.sleep

    def pause(self, failures: int, asked_s: float) -> None:
        """Wait before the next try; `asked_s` is how long the source asked for."""
        self.sleep(max(min(self.first_s * 2 ** (failures - 1), self.longest_s), asked_s))

    def keep_on(self, ask: Callable[[], T]) -> T:
        """What `ask` gives, asked again while it fails in a way that may pass. Raises SourceError."""
        for failures in range(1, self.tries):
            try:
                return ask()
            except SourceError as error:
                if error.lasting:
                    raise
                self.pause(failures, error.retry_after_s)
        return ask()


@dataclass(slots=True)
class Taken:
    """What has been read so far: bytes by the label of the source, and how often a source had to be asked again."""

    by_source: dict[str, int] = field(default_factory=dict)
    retries: int = 0

    def add(self, source: Source, count: int) -> None:
        """Count bytes of a source."""
        self.by_source[source.label] = self.by_source.get(source.label, 0) + count


class Reader:
    """The sources of one file, in the order in which they are asked. Raises CheckpointError where they disagree."""

    def __init__(self, sources: Sequence[Source], patience: Patience | None = None, taken: Taken | None = None) -> None:
        if not sources:
            raise CheckpointError("there is no source to fetch from")
        self.facts: FileFacts = sources[0].facts
        for source in sources:
            if (source.facts.nbytes, source.facts.tag) != (self.facts.nbytes, self.facts.tag):
                raise CheckpointError(f"{source.label} has another {self.facts.name} than {sources[0].label}")
        self.taken = taken or Taken()
        self.givers: list[Source] = []
        """Who has given bytes since the caller last cleared this."""
        self._sources = list(sources)
        self._patience = patience or Patience()
        self._failures: dict[int, int] = {}
        self._last: dict[int, SourceError] = {}

    def read(self, start: int, nbytes: int, sink: Sink) -> None:
        """Give start..start + nbytes to `sink` in order. Raises CheckpointError when every source has failed."""
        at, end = start, start + nbytes

        def counted(view: memoryview) -> None:
            nonlocal at
            at += len(view)
            self.taken.add(source, len(view))
            if source not in self.givers:
                self.givers.append(source)
            sink(view)

        while at < end:
            source, until = self._choose(at, end)
            before = at
            try:
                source.read(at, until - at, counted)
            except SourceError as error:
                self._failed(source, error, moved=at > before)
            else:
                self._failures.pop(id(source), None)

    def distrust(self, givers: Sequence[Source], what: str) -> None:
        """Ask these no more: what they gave was not what it should be. Raises CheckpointError when nobody is left."""
        for source in givers:
            self._last[id(source)] = SourceError(f"{source.label} gave {what} with a wrong SHA-256", lasting=True)
            self._sources.remove(source)
            source.close()
        if not self._sources:
            raise CheckpointError(self._told())

    def close(self) -> None:
        """Close every source."""
        for source in self._sources:
            source.close()

    def _choose(self, at: int, end: int) -> tuple[Source, int]:
        """The first source that has the byte `at`, and how far to read from it: not past what an earlier one has."""
        limit = end
        for source in self._sources:
            until = held_until(source.held, at)
            if until > at:
                return source, min(until, limit)
            limit = min(limit, next_start(source.held, at, limit, SKIPPED_BYTES))
        raise CheckpointError(self._told() or f"no source has byte {at} of {self.facts.name}")

    def _told(self) -> str:
        return "; ".join(str(error) for error in self._last.values())

    def _failed(self, source: Source, error: SourceError, *, moved: bool) -> None:
        failures = 1 if moved else self._failures.get(id(source), 0) + 1
        self._failures[id(source)] = failures
        self._last[id(source)] = error
        if error.lasting or failures >= self._patience.tries:
            self._sources.remove(source)
            source.close()
            return
        self.taken.retries += 1
        self._patience.pause(failures, error.retry_after_s)
