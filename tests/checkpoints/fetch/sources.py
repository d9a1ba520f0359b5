"""Sources in memory, and what a test does with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from ropeway.checkpoints.fetch.ranges import Ranges
from ropeway.checkpoints.fetch.reader import Patience
from ropeway.checkpoints.fetch.source import FileFacts, Sink, SourceError
from ropeway.checkpoints.slicing import slice_stage


class Memory:
    """A file in memory, of which `held` is there. `fail` is asked before each piece of `step` bytes."""

    def __init__(
        self,
        data: bytes,
        label: str = "memory",
        held: Ranges | None = None,
        fail: Callable[[int], SourceError | None] = lambda _: None,
        step: int = 7,
        tag: str = "tag",
    ) -> None:
        self.data = data
        self.label = label
        self.bytes_read = 0
        self.facts = FileFacts("file", len(data), tag)
        self.held: Ranges = ((0, len(data)),) if held is None else held
        self.closed = False
        self.asked: list[tuple[int, int]] = []
        self._fail = fail
        self._step = step

    def read(self, start: int, nbytes: int, sink: Sink) -> None:
        """As `Source`."""
        self.asked.append((start, nbytes))
        for at in range(start, start + nbytes, self._step):
            if error := self._fail(at):
                raise error
            piece = self.data[at : min(at + self._step, start + nbytes)]
            self.bytes_read += len(piece)
            sink(memoryview(piece))

    def digest(self, start: int, nbytes: int) -> str | None:
        """As `Source`."""
        return hashlib.sha256(self.data[start : start + nbytes]).hexdigest()

    def close(self) -> None:
        """As `Source`."""
        self.closed = True


def no_wait(tries: int = 4) -> Patience:
    """Patience that takes no time."""
    return Patience(tries=tries, sleep=lambda _: None)


def same_slices(files: tuple[Path, ...], whole: Path, cache: Path) -> int:
    """Hold every slice among `files` against one cut from the whole file; how many there were."""
    count = 0
    for path in files:
        if path.parent.name == "slices":
            _, kind, first, end = path.stem.split("-")
            cut = slice_stage(whole, int(first), int(end), kind in ("tail", "head"), cache)
            assert cut.read_bytes() == path.read_bytes(), path.name
            count += 1
    return count
