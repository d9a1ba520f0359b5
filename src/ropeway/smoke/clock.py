"""The clock by which a run's deadlines and its costs are counted: no setting of the time moves it, and it goes on while
this machine sleeps, as the machines that are rented do."""

from __future__ import annotations

import time


def elapsed() -> float:
    """Seconds since some moment, those that this machine slept included (where the system counts them)."""
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if number is None else time.clock_gettime(number)
