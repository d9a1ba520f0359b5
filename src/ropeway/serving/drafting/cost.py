"""What a round costs: a straight line through the measured times of decode rounds, seconds against rows.

Pure: the standard library alone; times are arguments. The line is what a small Kalman filter believes: it follows a
machine that gets slower or faster, learns most from rounds whose rows differ from the usual, and is not thrown off by
one round that was held up.
"""

from __future__ import annotations

from typing import Final

FIRST_ROW_SHARE: Final = 0.5
"""What one more row is believed to cost at first, as a share of a round of one row: the worst of the usual cases, since
a long trip or a graphics card makes rows nearly free and a lone CPU does not."""

NOISE: Final = 0.15
"""Spread of a round's time about the line, as a share of it."""
BASE_DRIFT: Final = 0.05
ROW_DRIFT: Final = 0.01
"""How far base and row may move from one round to the next, as shares of a round of one row."""
FARTHEST: Final = 3.0
"""A round farther off than so many standard deviations counts as one that is just so far off."""
SHORTEST_S: Final = 1e-9
"""What takes no time that a clock could tell counts as this long."""


class CostLine:
    """Seconds of a decode round by its rows: `base_s + row_s * rows`."""

    def __init__(self) -> None:
        self.rounds = 0
        self.base_s = 0.0
        self.row_s = 0.0
        self._base_var = 0.0
        self._row_var = 0.0
        self._cov = 0.0

    @property
    def known(self) -> bool:
        """At least one round has been measured."""
        return self.rounds > 0

    def at(self, rows: float) -> float:
        """Seconds of a round of so many rows, as believed."""
        return self.base_s + self.row_s * rows

    def observe(self, rows: int, seconds: float) -> None:
        """A round of `rows` rows took `seconds`."""
        self.rounds += 1
        seconds = max(seconds, SHORTEST_S)
        if self.rounds == 1:
            self._begin(rows, seconds)
            return
        single = self.base_s + self.row_s
        self._base_var += (BASE_DRIFT * single) ** 2
        self._row_var += (ROW_DRIFT * single) ** 2
        believed = self.at(rows)
        base_gain = self._base_var + self._cov * rows
        row_gain = self._cov + self._row_var * rows
        spread = base_gain + row_gain * rows + (NOISE * believed) ** 2
        limit = FARTHEST * spread**0.5
        off = max(-limit, min(limit, seconds - believed))
        self.base_s = max(0.0, self.base_s + base_gain / spread * off)
        self.row_s = max(0.0, self.row_s + row_gain / spread * off)
        self._base_var -= base_gain * base_gain / spread
        self._row_var -= row_gain * row_gain / spread
        self._cov -= base_gain * row_gain / spread

    def _begin(self, rows: int, seconds: float) -> None:
        single = seconds / (1 + FIRST_ROW_SHARE * (rows - 1))
        self.row_s = FIRST_ROW_SHARE * single
        self.base_s = single - self.row_s
        # What is sure is the sum at these rows; how it divides is not.
        self._row_var = (self.row_s * 0.7) ** 2
        self._base_var = self._row_var * rows * rows + (NOISE * seconds) ** 2
        self._cov = -self._row_var * rows
