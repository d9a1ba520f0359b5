"""What a round costs: a straight line through the measured times of decode rounds, seconds against rows.

Pure: the standard library alone; times are arguments. A small Kalman filter holds two beliefs: the time of a round of
one row, and what each further row costs as a share of that. So it follows a machine that gets slower or faster as a
whole, learns about rows only from rounds that have several, and is not thrown off by one round that was held up.
"""

from __future__ import annotations

import math
from typing import Final

FIRST_SHARE: Final = 0.5
"""What a further row is believed to cost at first: near the worst of the usual cases, since a long trip or a graphics
card makes rows nearly free and a lone CPU does not."""
MOST_SHARE: Final = 1.0
"""No row costs more than a round of its own."""

NOISE: Final = 0.15
"""Spread of a round's time about the line."""
DRIFT: Final = 0.05
SHARE_DRIFT: Final = 0.01
"""How far the two beliefs may move from one round to the next; these and the ones below are natural logarithms' units
for the time, plain numbers for the share."""
FIRST_SPREAD: Final = 0.4
FIRST_SHARE_SPREAD: Final = 0.3
FARTHEST: Final = 3.0
"""A round farther off than so many standard deviations counts as one that is just so far off."""
SHORTEST_S: Final = 1e-9
"""What takes no time that a clock could tell counts as this long."""


class CostLine:
    """Seconds of a round by its rows: `single_s * (1 + share * (rows - 1))`."""

    def __init__(self) -> None:
        self.known = False
        """At least one round has been measured."""
        self.single_s = 0.0
        self.share = FIRST_SHARE
        self._var = FIRST_SPREAD**2
        self._share_var = FIRST_SHARE_SPREAD**2
        self._cov = 0.0

    @property
    def row_s(self) -> float:
        """Seconds of one more row."""
        return self.single_s * self.share

    def at(self, rows: float) -> float:
        """Seconds of a round of so many rows, as believed."""
        return self.single_s * (1 + self.share * (rows - 1))

    def observe(self, rows: float, seconds: float) -> None:
        """A round of `rows` rows, at least 1, took `seconds`."""
        seconds = max(seconds, SHORTEST_S)
        if not self.known:
            self.known = True
            self.single_s = seconds / (1 + self.share * (rows - 1))
        self._var += DRIFT**2
        self._share_var += SHARE_DRIFT**2
        # The logarithm of the line moves by 1 with that of single_s, and by so much with share:
        slope = (rows - 1) / (1 + self.share * (rows - 1))
        gain = self._var + self._cov * slope
        share_gain = self._cov + self._share_var * slope
        spread = gain + share_gain * slope + NOISE**2
        limit = FARTHEST * math.sqrt(spread)
        off = max(-limit, min(limit, math.log(seconds / self.at(rows))))
        self.single_s *= math.exp(gain / spread * off)
        self.share = min(MOST_SHARE, max(0.0, self.share + share_gain / spread * off))
        self._var -= gain * gain / spread
        self._share_var -= share_gain * share_gain / spread
        self._cov -= gain * share_gain / spread
