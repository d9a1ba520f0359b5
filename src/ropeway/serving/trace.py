"""Rounds in the Chrome trace format, which Perfetto and chrome://tracing show: a row a stage, a counter of what waits.

The format: "Trace Event Format" (Google, document 1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): complete events (X),
flows from a stage to the next (s, f), metadata (M). Times are rank 0's clock; see spans.py for the other stages'.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from ropeway.serving.spans import Drawn, draw
from ropeway.serving.underway import RoundRecord

MOST_ROUNDS: Final = 100_000
"""A trace keeps the first rounds; viewers grow slow with more."""
_NAMES: Final = {"forward": "forward", "wait_rows": "waits for rows", "wait_send": "waits to send"}

Event = dict[str, object]


class Tracer:
    """Collects a loop's rounds, to be written once they are over. One thread calls it."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []

    def take(self, record: RoundRecord) -> None:
        """A round has left."""
        if len(self.records) < MOST_ROUNDS:
            self.records.append(record)

    def write(self, path: Path, stages: Sequence[str]) -> None:
        """The trace of all rounds; `stages` are what each rank's row is called. Raises OSError."""
        path.write_text(json.dumps(chrome_trace(self.records, stages)), encoding="utf-8")


def chrome_trace(records: Sequence[RoundRecord], stages: Sequence[str]) -> Event:
    """The trace as a JSON-ready object; times in microseconds since the first round was launched."""
    events: list[Event] = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "ropeway ring"}}]
    for rank, name in enumerate(stages):
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": name}})
        events.append({"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": rank, "args": {"sort_index": rank}})
    zero = records[0].launched_ns if records else 0
    drawn = draw(records, len(stages))
    for rank, spans in enumerate(drawn):
        events += (_span(span, rank, zero) for span in spans)
    events += _flows(drawn, zero)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _span(span: Drawn, rank: int, zero: int) -> Event:
    record = span.record
    return {
        "name": _NAMES[span.kind],
        "cat": span.kind,
        "ph": "X",
        "pid": 0,
        "tid": rank,
        "ts": (span.start_ns - zero) / 1e3,
        "dur": (span.end_ns - span.start_ns) / 1e3,
        "args": {"round": record.number, "rows": record.rows, "parts": record.parts},
    }


def _flows(drawn: Sequence[Iterable[Drawn]], zero: int) -> list[Event]:
    """An arrow from each stage's first forward of a round to the next stage's."""
    firsts: dict[int, list[tuple[int, Drawn]]] = {}
    for rank, spans in enumerate(drawn):
        for span in spans:
            found = firsts.setdefault(span.record.number, [])
            if span.kind == "forward" and (not found or found[-1][0] != rank):
                found.append((rank, span))
    flows: list[Event] = []
    for number, hops in firsts.items():
        for (rank, one), (other, next_) in pairwise(hops):
            about: Event = {"name": "rows", "cat": "rows", "pid": 0, "id": number * len(drawn) + rank}
            flows.append({**about, "ph": "s", "tid": rank, "ts": (one.start_ns - zero) / 1e3})
            flows.append({**about, "ph": "f", "bp": "e", "tid": other, "ts": (next_.start_ns - zero) / 1e3})
    return flows
