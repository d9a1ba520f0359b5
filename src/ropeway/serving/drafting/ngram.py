"""The n-gram drafter: what followed the longest suffix of prompt and reply when it occurred before.

Pure: the standard library alone. One suffix automaton a sequence, of bounded size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from ropeway.serving.drafting.automaton import SuffixAutomaton
from ropeway.serving.drafting.drafter import Guess
from ropeway.serving.sequence import Sequence

GRADES: Final = (3, 4, 6, 9, 16)
"""Least match length of each grade. Two tokens come together again too often by chance."""

PRIORS: Final = (0.35, 0.5, 0.65, 0.8, 0.92)

LIMIT: Final = 32_768
"""Tokens that one automaton holds; when it is full, a new one begins with the later half of them."""


class _Text:
    """One sequence's automaton; `read` of its tokens have been seen."""

    __slots__ = ("automaton", "read")

    def __init__(self) -> None:
        self.automaton = SuffixAutomaton()
        self.read = 0


class NgramDrafter:
    """Guesses by repetition. A `Drafter`."""

    priors = PRIORS

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._texts: dict[int, _Text] = {}

    def behind(self, sequence: Sequence) -> int:
        """How many tokens are not in the automaton yet."""
        text = self._texts.get(sequence.id)
        return len(sequence.prompt) + len(sequence.produced) - (0 if text is None else text.read)

    def observe(self, sequence: Sequence) -> None:
        """Put the new tokens into the automaton."""
        text = self._texts.setdefault(sequence.id, _Text())
        size = len(sequence.prompt)
        text.read = max(text.read, size + len(sequence.produced) - self._limit)
        fresh = [*sequence.prompt[text.read :], *sequence.produced[max(0, text.read - size) :]]
        for token in fresh:
            if len(text.automaton.text) >= self._limit:
                text.automaton = _later_half(text.automaton)
            text.automaton.extend(token)
            text.read += 1

    def propose(self, sequence: Sequence) -> Iterator[Guess]:
        """What followed, token by token; where that reaches the end of the text, it goes round."""
        automaton = self._texts[sequence.id].automaton
        text, match = automaton.text, automaton.match
        if match.length < GRADES[0]:
            return
        period = len(text) - match.after
        for offset in range(self._limit):
            yield Guess(text[match.after + offset % period], grade_of(match.length + offset))

    def ahead(self, sequence: Sequence) -> bool:
        """Guesses cost nothing."""
        return False

    def forget(self, sequence_id: int) -> None:
        """Drop the automaton."""
        self._texts.pop(sequence_id, None)

    def close(self) -> None:
        """Drop everything."""
        self._texts.clear()


def grade_of(length: int) -> int:
    """The grade of a guess behind a match of so many tokens, guesses that would have been right included."""
    return bisect_right(GRADES, length) - 1


def _later_half(full: SuffixAutomaton) -> SuffixAutomaton:
    fresh = SuffixAutomaton()
    for token in full.text[len(full.text) // 2 :]:
        fresh.extend(token)
    return fresh
