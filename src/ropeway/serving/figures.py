"""What the ring has been doing: figures of the last seconds, for /v1/ring.

Written and read by the loop's thread. Times are rank 0's monotonic clock in nanoseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ropeway.serving.underway import RoundRecord

WINDOW_NS: Final = 5_000_000_000
RECENT: Final = 8
TIMELINE_ROUNDS: Final = 64
"""Rounds that a timeline shows at most; the first ones of a longer reply."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the last seconds that one stage spent so. `wire` is the wire's part in the two waits: all waits for a
    free buffer, and in rounds that had the ring for themselves the hop's share of what no stage computed."""

    forward: float
    wait_rows: float
    wait_send: float
    wire: float = 0.0

    @property
    def waiting(self) -> float:
        """The waits without the wire: for other stages, and for rounds."""
        return self.wait_rows + self.wait_send - self.wire

    @property
    def other(self) -> float:
        """The rest: idle between rounds, and Python."""
        return max(0.0, 1.0 - self.forward - self.wait_rows - self.wait_send)


def reach_ns(records: Sequence[RoundRecord], now_ns: int, window_ns: int, most: int) -> int:
    """The window, or so much of it as is on record where only the last `most` rounds are."""
    if len(records) < most:
        return window_ns
    return max(1, min(window_ns, now_ns - records[0].launched_ns))


def stage_shares(
    records: Iterable[RoundRecord], rank: int, world: int, now_ns: int, window_ns: int = WINDOW_NS
) -> Shares:
    """Where a stage's time went in the window, by the rounds that landed in it."""
    forward = rows = send = wire = 0
    begin = now_ns - window_ns
    for record in records:
        if record.landed_ns < begin:
            continue
        if rank == 0:
            forward += record.own_ns + record.head_ns
            wait_rows, wait_send = record.wait_rows_ns, record.wait_send_ns
        elif (done := record.dones.get(rank)) is not None:
            forward += done.forward_ns
            wait_rows, wait_send = done.wait_rows_ns, done.wait_send_ns
        else:
            continue
        rows += wait_rows
        send += wait_send
        wire += wait_send + min(wait_rows, max(0, record.wire_ns(world) or 0) // world)
    return Shares(*(min(1.0, part / window_ns) for part in (forward, rows, send, wire)))


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
