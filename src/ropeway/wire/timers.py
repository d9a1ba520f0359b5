"""Keep-alive and silence (wire.md 7), with the time as an argument: nothing here reads a clock or waits.

`now` is any clock in seconds that never runs backwards, the same one in every call of a timer.
"""

from __future__ import annotations

import math
from typing import Final

KEEPALIVE_S: Final = 2.0
SILENCE_S: Final = 6.0
PROOF_S: Final = 10.0
"""How long a dialer may take to prove itself (wire.md 4)."""
UNPROVED_PER_RANK: Final = 4
"""Most unproved connections that an acceptor holds, times the world (wire.md 4)."""


class KeepAlive:
    """When to send the next keep-alive: `interval_s` after the last plan. Stands still until the first `sent`."""

    __slots__ = ("_interval_s", "_next_at")

    def __init__(self, interval_s: float = KEEPALIVE_S) -> None:
        self._interval_s = interval_s
        self._next_at = math.inf

    def sent(self, now: float) -> None:
        """A plan (a keep-alive too) has just been sent; also starts the timer."""
        self._next_at = now + self._interval_s

    def due(self, now: float) -> bool:
        """A keep-alive is due."""
        return now >= self._next_at

    def next_at(self) -> float:
        """When it will be due; infinity before the start."""
        return self._next_at


class Silence:
    """When a peer counts as lost: `limit_s` after anything was last heard. Stands still until the first `heard`."""

    __slots__ = ("_limit_s", "_lost_at")

    def __init__(self, limit_s: float = SILENCE_S) -> None:
        self._limit_s = limit_s
        self._lost_at = math.inf

    def heard(self, now: float) -> None:
        """A frame of any kind has arrived on any connection; also starts the timer."""
        self._lost_at = now + self._limit_s

    def due(self, now: float) -> bool:
        """The peer has been silent for too long."""
        return now >= self._lost_at

    def next_at(self) -> float:
        """When it will be due; infinity before the start."""
        return self._lost_at
