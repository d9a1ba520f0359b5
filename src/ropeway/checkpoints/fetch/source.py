"""What a source of bytes is: one file of a checkpoint, somewhere, read by ranges. Knows nothing of formats."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.ranges import Ranges

Sink = Callable[[memoryview], None]
"""Takes the next bytes in order; the view is good until it returns."""

MAX_FILE_BYTES = 1 << 43
"""8 TiB: no file of a checkpoint is larger, so nothing that claims to be is believed."""


class SourceError(CheckpointError):
    """A source could not give what it was asked for.

    `lasting`: it will not later either. `retry_after_s`: when it said to ask again, 0 where it did not.
    """

    def __init__(self, text: str, *, lasting: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.lasting = lasting
        self.retry_after_s = retry_after_s


class Missing(SourceError):
    """There is no such file at the source."""

    def __init__(self, text: str) -> None:
        super().__init__(text, lasting=True)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a source says of its file. `tag` tells contents apart: "sha256:HEX" or "git:HEX" where that is known."""

    name: str
    nbytes: int
    tag: str

    @property
    def key(self) -> str:
        """64 hex digits: the same on every node that fetched the same content from the same place."""
        return hashlib.sha256(f"{self.nbytes} {self.tag}".encode()).hexdigest()

    @property
    def digest(self) -> str | None:
        """The whole content's digest where the source gives one: SHA-256 in hex, or git's SHA-1 of a blob."""
        kind, _, value = self.tag.partition(":")
        return value if kind in ("sha256", "git") else None


class Source(Protocol):
    """One file at one place.

    `label` names the place for people, without secrets. `bytes_read` counts what came over a network, used or not.
    """

    @property
    def label(self) -> str: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def facts(self) -> FileFacts: ...
    @property
    def held(self) -> Ranges:
        """The bytes that this source has."""
        ...

    def read(self, start: int, nbytes: int, sink: Sink) -> None:
        """Give bytes start..start + nbytes, all held, to `sink` in order.

        Raises SourceError when the source fails, maybe after some bytes; what `sink` raises passes through.
        """
        ...

    def digest(self, start: int, nbytes: int) -> str | None:
        """SHA-256 hex of a range as this source has it; None where it gives none. Raises SourceError."""
        ...

    def close(self) -> None: ...
