"""Rounds as spans a stage, for timelines and traces. Any thread may draw; no clock is read.

A stage's clock is not ours, and a done frame has sums alone. So a stage's parts are drawn where its rows can have come:
each behind the same part on the stage before it and behind what the stage did last, all of a round's parts alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from ropeway.serving.underway import RoundRecord
from ropeway.wire import Done

Spans = list[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a stage did: `forward`, `wait_rows` or `wait_send`, in nanoseconds of rank 0's clock."""

    kind: str
    start_ns: int
    end_ns: int
    record: RoundRecord


def timeline(records: Iterable[RoundRecord], world: int, start_ns: int) -> list[dict[str, object]]:
    """The stages' spans as /v1/ring gives them."""
    found = stage_spans(records, world, start_ns)
    return [{"rank": rank, "spans": [list(span) for span in spans]} for rank, spans in enumerate(found)]


def stage_spans(records: Iterable[RoundRecord], world: int, start_ns: int) -> list[Spans]:
    """Per stage, spans (kind, start ms, end ms) since `start_ns`; touching ones of a kind are one."""
    found: list[Spans] = []
    for drawn in draw(records, world):
        spans: Spans = []
        for span in drawn:
            start = round(max(0.0, (span.start_ns - start_ns) / 1e6), 3)
            end = round((span.end_ns - start_ns) / 1e6, 3)
            if spans and spans[-1][0] == span.kind and start - spans[-1][2] < 0.001:
                spans[-1] = (span.kind, spans[-1][1], max(end, spans[-1][2]))
            elif end > start:
                spans.append((span.kind, start, end))
        found.append(spans)
    return found


def draw(records: Iterable[RoundRecord], world: int) -> list[list[Drawn]]:
    """Per stage, its spans in order; a stage's spans do not overlap. Records are those of one loop, in order."""
    spans: list[list[Drawn]] = [[] for _ in range(world)]
    for record in records:
        ends = _draw_own(spans[0], record)
        for rank in range(1, world):
            if (done := record.dones.get(rank)) is not None:
                ends = _draw_stage(spans[rank], record, done, ends)
    return spans


def _draw_own(spans: list[Drawn], record: RoundRecord) -> list[int]:
    """Rank 0's spans; when each of its parts had been computed."""
    parts = max(1, record.parts)
    until = max(record.sent_ns, record.launched_ns + record.own_ns)
    begins = [record.launched_ns + (until - record.launched_ns) * part // parts for part in range(parts)]
    ends = [begin + record.own_ns // parts for begin in begins]
    sending = min(record.wait_send_ns, until - record.launched_ns - record.own_ns) // parts
    for end, begin in zip(ends, begins, strict=True):
        _add(spans, Drawn("forward", begin, end, record))
        _add(spans, Drawn("wait_send", end, end + sending, record))
    _add(spans, Drawn("wait_rows", record.back_ns - record.wait_rows_ns, record.back_ns, record))
    _add(spans, Drawn("forward", record.back_ns, record.back_ns + record.head_ns, record))
    return ends


def _draw_stage(spans: list[Drawn], record: RoundRecord, done: Done, ready: list[int]) -> list[int]:
    """Another rank's spans; `ready` is when the stage before had computed each part. When this one had."""
    parts = len(ready)
    free = spans[-1].end_ns if spans else 0
    runs: list[tuple[int, int]] = []
    for came in ready:
        begin = max(came, free)
        free = begin + done.forward_ns // parts
        runs.append((begin, free))
    between = sum(later[0] - earlier[1] for earlier, later in pairwise(runs))
    _add(spans, Drawn("wait_rows", runs[0][0] - max(0, done.wait_rows_ns - between), runs[0][0], record))
    for number, (begin, end) in enumerate(runs):
        if number:
            _add(spans, Drawn("wait_rows", runs[number - 1][1], begin, record))
        _add(spans, Drawn("forward", begin, end, record))
    _add(spans, Drawn("wait_send", free, free + done.wait_send_ns, record))
    return [end for _, end in runs]


def _add(spans: list[Drawn], span: Drawn) -> None:
    """What begins before the last one has ended is shown from there on."""
    start = max(span.start_ns, spans[-1].end_ns) if spans else span.start_ns
    if span.end_ns - start >= 1000:
        spans.append(Drawn(span.kind, start, span.end_ns, span.record))
