"""Files on this machine as sources: a whole file, or pieces of it that lie in other files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ropeway.checkpoints.fetch.ranges import Ranges, union
from ropeway.checkpoints.fetch.source import FileFacts, Sink, SourceError

_BUFFER_BYTES = 1 << 20
_SAMPLES = 4096
_SAMPLE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes start..start + nbytes of a checkpoint's file, which lie at `at` in the local file `path`."""

    start: int
    nbytes: int
    path: Path
    at: int

    @property
    def end(self) -> int:
        """The byte behind the last."""
        return self.start + self.nbytes


class LocalSource:
    """Bytes of one file that are on this machine, in one piece or in many."""

    bytes_read = 0

    def __init__(self, facts: FileFacts, extents: Iterable[Extent], label: str = "this machine") -> None:
        self.facts = facts
        self.label = label
        self._extents = sorted((e for e in extents if e.nbytes), key=lambda e: (e.start, -e.nbytes))
        self.held: Ranges = union((e.start, e.end) for e in self._extents)

    def read(self, start: int, nbytes: int, sink: Sink) -> None:
        """As `Source`."""
        at, end = start, start + nbytes
        while at < end:
            extent = next((e for e in self._extents if e.start <= at < e.end), None)
            if extent is None:
                raise SourceError(f"{self.label} does not hold byte {at} of {self.facts.name}", lasting=True)
            count = min(end, extent.end) - at
            _read_file(extent.path, extent.at + at - extent.start, count, sink)
            at += count

    def digest(self, start: int, nbytes: int) -> str | None:
        """SHA-256 hex of a range."""
        digest = hashlib.sha256()
        self.read(start, nbytes, digest.update)
        return digest.hexdigest()

    def close(self) -> None:
        """Nothing stays open."""


def whole_file(path: Path, name: str = "") -> LocalSource:
    """A file of this machine with all its bytes. Raises SourceError."""
    try:
        stat = path.stat()
        digest = hashlib.sha256(f"{stat.st_size} {stat.st_mtime_ns}".encode())
        with path.open("rb") as file:
            step = max(_SAMPLE_BYTES, stat.st_size // _SAMPLES)
            for at in range(0, stat.st_size, step):
                digest.update(os.pread(file.fileno(), _SAMPLE_BYTES, at))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}", lasting=True) from None
    facts = FileFacts(name or path.name, stat.st_size, f"file:{digest.hexdigest()}")
    return LocalSource(facts, [Extent(0, stat.st_size, path, 0)], str(path))


def _read_file(path: Path, at: int, nbytes: int, sink: Sink) -> None:
    def failed(why: str) -> SourceError:
        return SourceError(f"{path}: cannot be read: {why}", lasting=True)

    buffer = memoryview(bytearray(min(_BUFFER_BYTES, nbytes)))
    try:
        file = path.open("rb", buffering=0)
    except OSError as error:
        raise failed(error.strerror or str(error)) from None
    with file:
        read: Callable[[memoryview], int | None] = file.readinto
        file.seek(at)
        while nbytes:
            try:
                count = read(buffer[: min(len(buffer), nbytes)])
            except OSError as error:
                raise failed(error.strerror or str(error)) from None
            if not count:
                raise failed("it is shorter than it was")
            nbytes -= count
            sink(buffer[:count])
