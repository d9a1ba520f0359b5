"""How often guesses have been right, by grade: on the whole ring, and for each sequence.

Pure: the standard library alone.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Final

PRIOR_WEIGHT: Final = 6.0
"""Guesses that a grade's prior is worth against what the ring has counted."""
RING_WEIGHT: Final = 8.0
"""Guesses that the ring's share is worth against what a sequence has counted."""
RING_MEMORY: Final = 256.0
SEQUENCE_MEMORY: Final = 32.0
"""Counts are halved when they reach this, so that old ones fade."""


class _Counts:
    """Guesses tried and guesses right, a grade each."""

    __slots__ = ("memory", "right", "tried")

    def __init__(self, grades: int, memory: float) -> None:
        self.memory = memory
        self.tried = [0.0] * grades
        self.right = [0.0] * grades

    def add(self, grade: int, right: bool) -> None:
        self.tried[grade] += 1.0
        self.right[grade] += right
        if self.tried[grade] >= self.memory:
            self.tried[grade] /= 2
            self.right[grade] /= 2


class Acceptance:
    """Shares of right guesses. `priors` are the shares that one grade each is believed to have at first."""

    def __init__(self, priors: Items[float]) -> None:
        self.priors = tuple(priors)
        self._ring = _Counts(len(priors), RING_MEMORY)
        self._sequences: dict[int, _Counts] = {}

    def rate(self, grade: int, sequence_id: int | None = None) -> float:
        """How likely a guess of `grade` is right, for a sequence or on the whole."""
        ring = self._ring
        share = (ring.right[grade] + PRIOR_WEIGHT * self.priors[grade]) / (ring.tried[grade] + PRIOR_WEIGHT)
        own = None if sequence_id is None else self._sequences.get(sequence_id)
        if own is None:
            return share
        return (own.right[grade] + RING_WEIGHT * share) / (own.tried[grade] + RING_WEIGHT)

    def observe(self, sequence_id: int, grades: Items[int], right: int) -> None:
        """The first `right` guesses were right and the next, if there was one, was wrong; the rest told nothing."""
        own = self._sequences.setdefault(sequence_id, _Counts(len(self.priors), SEQUENCE_MEMORY))
        for index, grade in enumerate(grades[: right + 1]):
            for counts in (self._ring, own):
                counts.add(grade, index < right)

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended."""
        self._sequences.pop(sequence_id, None)
