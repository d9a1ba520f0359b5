"""What the ring has been doing: figures of the last seconds, for /v1/ring.

Written and read by the loop's thread. Times are rank 0's monotonic clock in nanoseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ropeway.serving.underway import RoundRecord

WINDOW_NS: Final = 5_000_000_000
RECENT: Final = 8
TIMELINE_ROUNDS: Final = 64
"""Rounds that a timeline shows at most; the first ones of a longer reply."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the last seconds that one stage spent so."""

    forward: float
    wait_rows: float
    wait_send: float

    @property
    def other(self) -> float:
        """The rest: idle between rounds, and Python."""
        return max(0.0, 1.0 - self.forward - self.wait_rows - self.wait_send)


def stage_shares(records: Iterable[RoundRecord], rank: int, now_ns: int, window_ns: int = WINDOW_NS) -> Shares:
    """Where a stage's time went in the window, by the rounds that landed in it."""
    forward = rows = send = 0
    begin = now_ns - window_ns
    for record in records:
        if record.landed_ns < begin:
            continue
        if rank == 0:
            forward += record.own_ns + record.head_ns
            rows += record.wait_rows_ns
            send += record.wait_send_ns
        elif (done := record.dones.get(rank)) is not None:
            forward += done.forward_ns
            rows += done.wait_rows_ns
            send += done.wait_send_ns
    return Shares(min(1.0, forward / window_ns), min(1.0, rows / window_ns), min(1.0, send / window_ns))


class Rates:
    """Tokens a second over the last seconds."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, int, int]] = deque()
        self._tokens = self._prompt_tokens = 0

    def add(self, now_ns: int, tokens: int, prompt_tokens: int) -> None:
        """Take in what a round brought."""
        self._events.append((now_ns, tokens, prompt_tokens))
        self._tokens += tokens
        self._prompt_tokens += prompt_tokens
        self._forget(now_ns)

    def per_second(self, now_ns: int) -> tuple[float, float]:
        """(reply tokens, prompt tokens) a second."""
        self._forget(now_ns)
        seconds = WINDOW_NS / 1e9
        return self._tokens / seconds, self._prompt_tokens / seconds

    def _forget(self, now_ns: int) -> None:
        while self._events and self._events[0][0] < now_ns - WINDOW_NS:
            _, tokens, prompt_tokens = self._events.popleft()
            self._tokens -= tokens
            self._prompt_tokens -= prompt_tokens
