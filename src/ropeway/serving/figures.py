"""What the ring has been doing: figures of the last seconds and timelines of finished requests, for /v1/ring.

Written and read by the loop's thread, but for `timeline`, which any thread may draw. Times are rank 0's monotonic
clock in nanoseconds.
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

Spans = list[tuple[str, float, float]]


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


def timeline(records: Iterable[RoundRecord], world: int, start_ns: int) -> list[dict[str, object]]:
    """The stages' spans as /v1/ring gives them."""
    found = stage_spans(records, world, start_ns)
    return [{"rank": rank, "spans": [list(span) for span in spans]} for rank, spans in enumerate(found)]


def stage_spans(records: Iterable[RoundRecord], world: int, start_ns: int) -> list[Spans]:
    """Per stage, spans (kind, start ms, end ms) since `start_ns`; a stage's spans do not overlap.

    A stage's clock is not ours: its forward is drawn behind the one before it, which is when its rows can have come.
    """
    spans: list[Spans] = [[] for _ in range(world)]
    for record in records:
        at = record.launched_ns
        _add(spans[0], "forward", at, at + record.own_ns, start_ns)
        at += record.own_ns
        _add(spans[0], "wait_rows", record.back_ns - record.wait_rows_ns, record.back_ns, start_ns)
        _add(spans[0], "forward", record.back_ns, record.back_ns + record.head_ns, start_ns)
        for rank in range(1, world):
            if (done := record.dones.get(rank)) is None:
                continue
            begin = at if record.parts == 1 else at - record.own_ns * (record.parts - 1) // record.parts
            _add(spans[rank], "wait_rows", begin - done.wait_rows_ns, begin, start_ns)
            _add(spans[rank], "forward", begin, begin + done.forward_ns, start_ns)
            _add(
                spans[rank], "wait_send", begin + done.forward_ns, begin + done.forward_ns + done.wait_send_ns, start_ns
            )
            at = begin + done.forward_ns
    return spans


def _add(spans: Spans, kind: str, start_ns: int, end_ns: int, zero_ns: int) -> None:
    start = max(0.0, (start_ns - zero_ns) / 1e6)
    end = (end_ns - zero_ns) / 1e6
    if spans:
        start = max(start, spans[-1][2])
    if end - start >= 0.001:
        spans.append((kind, round(start, 3), round(end, 3)))


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
