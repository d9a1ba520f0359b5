"""What a drafter is: something that reads a sequence and guesses how it goes on.

Pure: the standard library alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ropeway.serving.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Guess:
    """A token that may come next if all guesses before it are right. `grade` says what kind of guess it is: how often
    guesses of a grade are right is counted, grade by grade."""

    token: int
    grade: int


@runtime_checkable
class RowReader(Protocol):
    """A drafter that reads the last layer's rows."""

    def take_rows(self, sequence: Sequence, position: int, rows: memoryview, count: int) -> None:
        """`count` rows for the sequence's positions from `position` on, as they crossed the boundary.

        Those of guesses are among them; what came before for the same positions is void.
        """
        ...


class Drafter(Protocol):
    """Guesses for the sequences of one ring. The loop's thread calls it.

    It keeps what it likes about a sequence until `forget`. It reads `prompt` and `produced`; one that needs the last
    layer's rows as well (a model's own next-token head) is a `RowReader`.
    """

    @property
    def priors(self) -> tuple[float, ...]:
        """How likely a guess of each grade is right, before anything has been counted."""
        ...

    def behind(self, sequence: Sequence) -> int:
        """How many of the sequence's tokens `observe` has yet to read."""
        ...

    def observe(self, sequence: Sequence) -> None:
        """Read what the sequence has by now; what it was thought to say and did not say is forgotten."""
        ...

    def propose(self, sequence: Sequence) -> Iterator[Guess]:
        """Guesses in order, made as they are asked for; the sequence has been observed."""
        ...

    def ahead(self, sequence: Sequence) -> bool:
        """Make one more guess beforehand, in a moment when rank 0 waits for rows; False where that is of no use."""
        ...

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended; unknown ids are let be."""
        ...

    def close(self) -> None:
        """Free the memory; the drafter is not used again."""
        ...
