"""A local file put together from pieces of a checkpoint's file, in order, so that its length says how far it is.

Whatever ends the writing (a lost connection, a full disk, a killed process), the next call goes on at the byte where it
stopped and reads nothing again from the network.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise
from typing import Protocol

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.ranges import Ranges, covers, union
from ropeway.checkpoints.fetch.reader import Reader
from ropeway.checkpoints.fetch.source import SourceError

GAP_BYTES = 4096
"""Bytes between two wanted pieces that are read and dropped rather than asked around."""
_READ_BACK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Literal:
    """Bytes that are known without reading anything; `at` is where they go."""

    at: int
    data: bytes

    @property
    def end(self) -> int:
        """The place behind them."""
        return self.at + len(self.data)


@dataclass(frozen=True, slots=True)
class Copy:
    """`nbytes` bytes from `start` of the checkpoint's file, to go to `at`; `name` is for messages."""

    at: int
    start: int
    nbytes: int
    name: str

    @property
    def end(self) -> int:
        """The place behind them."""
        return self.at + self.nbytes


@dataclass(frozen=True, slots=True)
class Recipe:
    """A file of `nbytes` bytes: `parts` in order, none over another; what they leave out are zeros."""

    nbytes: int
    parts: tuple[Literal | Copy, ...]

    @property
    def copies(self) -> list[Copy]:
        """The parts that are read from the checkpoint's file."""
        return [part for part in self.parts if isinstance(part, Copy)]

    @property
    def read_bytes(self) -> int:
        """Bytes of the checkpoint's file that go into it."""
        return sum(copy.nbytes for copy in self.copies)

    def copied(self) -> Ranges:
        """Those bytes, as ranges of the checkpoint's file."""
        return union((copy.start, copy.start + copy.nbytes) for copy in self.copies)


def add_samples(wanted: Iterable[Copy], samples: Iterable[Copy]) -> list[Copy]:
    """What is `wanted`, and the `samples` that do not lie in it, in order: all of copies that keep their place.

    Raises CheckpointError where two lie over each other.
    """
    kept = list(wanted)
    held = union((copy.start, copy.start + copy.nbytes) for copy in kept)
    kept += [copy for copy in samples if not covers(held, copy.start, copy.start + copy.nbytes)]
    kept.sort(key=lambda copy: copy.start)
    for one, other in pairwise(kept):
        if one.start + one.nbytes > other.start:
            raise CheckpointError(f"tensors lie over each other: {one.name} and {other.name}")
    return kept


class Voucher(Protocol):
    """Whose digests of the checkpoint's file hold."""

    def digest(self, start: int, nbytes: int) -> str | None:
        """SHA-256 hex of a range; None where it cannot say. Raises SourceError."""
        ...


Moved = Callable[[int], None]
"""Hears of bytes as they are written."""


def assemble(
    file: FileIO,
    recipe: Recipe,
    reader: Reader,
    moved: Moved = lambda _: None,
    vouch: Voucher | None = None,
) -> None:
    """Write `file`, open for reading and writing, from its present end to the recipe's.

    Digests of `vouch` hold: a piece that differs is thrown away and read again, at last from another
    source. Raises CheckpointError as the reader does, and OSError as the file does; the file then keeps what it has.
    """
    have = file.seek(0, os.SEEK_END)
    if have > recipe.nbytes:
        file.truncate(0)
        have = 0
    moved(sum(_overlap(copy, have) for copy in recipe.copies))
    todo = [part for part in recipe.parts if part.end > have]
    strikes: set[int] = set()
    while todo:
        part = todo[0]
        if isinstance(part, Literal):
            skip = max(have - part.at, 0)
            file.seek(part.at + skip)
            write_all(file, memoryview(part.data)[skip:])
            have = part.end
            todo = todo[1:]
            continue
        writer = _Writer(file, _run(todo), reader, moved, vouch, strikes)
        have, done = writer.write(max(have, part.at))
        todo = todo[done:]
    file.truncate(recipe.nbytes)


def _overlap(copy: Copy, have: int) -> int:
    return min(max(have - copy.at, 0), copy.nbytes)


def _run(parts: Sequence[Literal | Copy]) -> list[Copy]:
    """The copies at the start of `parts` that one request can bring: they follow each other in the source."""
    run: list[Copy] = []
    for part in parts:
        if not isinstance(part, Copy):
            break
        if run and not 0 <= part.start - (run[-1].start + run[-1].nbytes) <= GAP_BYTES:
            break
        run.append(part)
    return run


def write_all(file: FileIO, view: memoryview) -> None:
    """Write all of `view`: a file without a buffer takes less than that where the disk has no more room for now.

    Raises OSError.
    """
    while len(view):
        view = view[file.write(view) :]


class _Writer:
    """Puts one run of copies in their places as their bytes come, and holds each against its digest.

    `strikes` are the places of copies that differed once already.
    """

    def __init__(
        self,
        file: FileIO,
        run: list[Copy],
        reader: Reader,
        moved: Moved,
        vouch: Voucher | None,
        strikes: set[int],
    ) -> None:
        self._file = file
        self._run = run
        self._reader = reader
        self._moved = moved
        self._vouch = vouch
        self._strikes = strikes
        self._index = 0
        self._source = 0
        self._digest = hashlib.sha256()

    def write(self, have: int) -> tuple[int, int]:
        """Write the run from the place `have` in its first copy on; gives the place behind it and the copies done.

        Stops before the run's end where a copy has to be read again.
        """
        first = self._run[0]
        self._resume(first, have)
        self._source = first.start + have - first.at
        last = self._run[-1]
        self._file.seek(have)
        self._reader.givers.clear()
        with suppress(_Refused):
            self._reader.read(self._source, last.start + last.nbytes - self._source, self._take)
        return self._file.tell(), self._index

    def _resume(self, copy: Copy, have: int) -> None:
        """Take into the digest what an earlier call wrote of the first copy."""
        self._digest = hashlib.sha256()
        if self._vouch is None:
            return
        self._file.seek(copy.at)
        left = have - copy.at
        while left:
            data = self._file.read(min(left, _READ_BACK_BYTES))
            if not data:
                raise CheckpointError(f"the part of {copy.name} that was fetched earlier cannot be read back")
            self._digest.update(data)
            left -= len(data)

    def _take(self, view: memoryview) -> None:
        while len(view):
            copy = self._run[self._index]
            into = self._source - copy.start
            if into < 0:
                view, self._source = view[-into:], self._source + min(-into, len(view))
                continue
            if into == 0:
                self._file.seek(copy.at)
            piece = view[: copy.nbytes - into]
            write_all(self._file, piece)
            if self._vouch is not None:
                self._digest.update(piece)
            self._source += len(piece)
            self._moved(len(piece))
            view = view[len(piece) :]
            if self._source == copy.start + copy.nbytes:
                self._judge(copy)
                self._index += 1

    def _judge(self, copy: Copy) -> None:
        """Hold a finished copy against the voucher's digest; one that differs is cut off again.

        The first time nobody is blamed for it: a part of it may be from an earlier call, or from two sources.
        """
        digest, self._digest = self._digest, hashlib.sha256()
        givers = self._reader.givers.copy()
        self._reader.givers.clear()
        if self._vouch is None:
            return
        try:
            expected = self._vouch.digest(copy.start, copy.nbytes)
        except SourceError as error:
            raise CheckpointError(f"{copy.name} cannot be checked: {error}") from None
        if expected is None or expected == digest.hexdigest():
            return
        self._file.truncate(copy.at)
        self._file.seek(copy.at)
        self._moved(-copy.nbytes)
        if copy.at in self._strikes:
            self._reader.distrust(givers, copy.name)
        self._strikes.add(copy.at)
        raise _Refused


class _Refused(Exception):
    """A copy was not what the voucher has; internal to this file."""
