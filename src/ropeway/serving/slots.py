"""Rank 0's account of one stream: what its slot holds on every stage once all that is planned has run.

Pure: the standard library alone. It counts positions and generations exactly as stage/slots.py does, and makes the
stream's entries from them, so that a plan of ours is never stale.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropeway.serving.sequence import Sequence
from ropeway.wire import Op, StreamEntry


@dataclass(frozen=True, slots=True)
class Prefix:
    """Where a sequence may start: the first `rows` rows of its prompt are kept by every stage under `key`."""

    key: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Soon:
    """A state that would spare a prompt many more rows than `now` does is being kept at this moment."""

    now: Prefix | None


@dataclass(slots=True, eq=False)
class Stream:
    """An open stream, or one that is about to be opened.

    `position` counts the rows planned so far, less those that were rolled back; `accepted` says how many of the
    `last_rows` of its last round stay. `reserved` rows are set aside for it, and it may produce `limit` tokens.
    """

    sequence: Sequence
    reserved: int
    limit: int
    prefix: Prefix | None = None
    position: int = 0
    generation: int = 0
    last_rows: int = 0
    accepted: int = 0
    opened: bool = False

    def __post_init__(self) -> None:
        if self.prefix is not None:
            assert 0 < self.prefix.rows < len(self.sequence.prompt), "the last row of a prompt has to run"
            self.position = self.sequence.cached_rows = self.prefix.rows

    @property
    def prompt_left(self) -> int:
        """Rows of the prompt that are not planned yet."""
        return max(0, len(self.sequence.prompt) - self.position)

    @property
    def tokens_left(self) -> int:
        """How many tokens it may still produce."""
        return self.limit - len(self.sequence.produced)

    def take(self, rows: int) -> StreamEntry:
        """The entry for its next `rows` rows."""
        stream = self.sequence.id
        if self.opened:
            entry = StreamEntry(stream, Op.CONTINUE, self.position, rows, self.accepted, 0, self.generation)
            self.generation += self.accepted < self.last_rows
        elif self.prefix is not None:
            entry = StreamEntry(stream, Op.RESUME, self.position, rows, 0, self.position, self.generation)
            self.generation += 1
        else:
            entry = StreamEntry(stream, Op.OPEN, 0, rows)
        self.opened = True
        self.position += rows
        self.last_rows = self.accepted = rows
        return entry

    def keep(self, rows: int) -> None:
        """Of its last round `rows` rows stay; the stages hear of it with its next entry."""
        assert 0 < rows <= self.last_rows
        self.position -= self.accepted - rows
        self.accepted = rows

    def leave(self, op: Op) -> StreamEntry:
        """The entry that frees its slot."""
        return StreamEntry(self.sequence.id, op, generation=self.generation)
