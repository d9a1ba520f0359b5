"""A suffix automaton that grows token by token: the longest suffix of a text that occurred in it before, and where.

Pure: the standard library alone. Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985):
at most 2 states and 3 transitions a token, O(1) amortised to grow. About 100 bytes a token here: most states have one
transition, which lies in two arrays; only the others have a dictionary.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

MARKED: Final = 8
"""Suffixes of the text, longest first, that learn of their latest end with each token; the shorter ones may name an
older one, since keeping all of them would cost O(n) a token in a text such as "aaaa"."""

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Match:
    """The longest suffix that occurred before: its length, and the index of the token after an earlier occurrence."""

    length: int
    after: int


class SuffixAutomaton:
    """The substrings of `text`, which only grows."""

    def __init__(self) -> None:
        self.text = array("i")
        self.match = Match(0, 0)
        self._length = array("i", [0])
        self._link = array("i", [_NONE])
        self._end = array("i", [0])
        self._token = array("i", [_NONE])
        self._target = array("i", [_NONE])
        self._more: dict[int, dict[int, int]] = {}
        self._last = 0

    @property
    def states(self) -> int:
        """How many states there are; at most two a token, and the root."""
        return len(self._length)

    def extend(self, token: int) -> None:
        """Append a token."""
        self.text.append(token)
        new = self._state(self._length[self._last] + 1, len(self.text))
        at = self._last
        while at != _NONE and (target := self._follow(at, token)) == _NONE:
            self._point(at, token, new)
            at = self._link[at]
        if at == _NONE:
            self._link[new] = 0
        elif self._length[target] == self._length[at] + 1:
            self._link[new] = target
        else:
            self._link[new] = self._split(at, token, target)
        self._last = new
        self._look_back()

    def _split(self, at: int, token: int, target: int) -> int:
        """Give the shorter strings of `target`, which now end at more places than its longest, a state of their own."""
        clone = self._state(self._length[at] + 1, self._end[target])
        self._token[clone], self._target[clone] = self._token[target], self._target[target]
        if target in self._more:
            self._more[clone] = dict(self._more[target])
        self._link[clone] = self._link[target]
        self._link[target] = clone
        while at != _NONE and self._follow(at, token) == target:
            self._point(at, token, clone)
            at = self._link[at]
        return clone

    def _look_back(self) -> None:
        suffix = self._link[self._last]
        self.match = Match(self._length[suffix], self._end[suffix])
        for _ in range(MARKED):
            if suffix <= 0:
                break
            self._end[suffix] = len(self.text)
            suffix = self._link[suffix]

    def _state(self, length: int, end: int) -> int:
        self._length.append(length)
        self._link.append(_NONE)
        self._end.append(end)
        self._token.append(_NONE)
        self._target.append(_NONE)
        return len(self._length) - 1

    def _follow(self, state: int, token: int) -> int:
        if self._token[state] == token:
            return self._target[state]
        more = self._more.get(state)
        return _NONE if more is None else more.get(token, _NONE)

    def _point(self, state: int, token: int, target: int) -> None:
        if self._token[state] in (token, _NONE):
            self._token[state], self._target[state] = token, target
        else:
            self._more.setdefault(state, {})[token] = target
