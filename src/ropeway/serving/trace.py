"""Rounds in the Chrome trace format, which Perfetto and chrome://tracing show: a row a stage."""

from __future__ import annotations

from collections.abc import Sequence

from ropeway.serving.figures import stage_spans
from ropeway.serving.underway import RoundRecord

_NAMES = {"forward": "forward", "wait_rows": "waits for rows", "wait_send": "waits to send"}


def chrome_trace(records: Sequence[RoundRecord], world: int) -> dict[str, object]:
    """The trace as a JSON-ready object; times in microseconds since the first round was launched."""
    events: list[dict[str, object]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(world)
    ]
    if not records:
        return {"traceEvents": events, "displayTimeUnit": "ms"}
    zero = records[0].launched_ns
    for record in records:
        about = {"round": record.number, "rows": record.rows, "parts": record.parts}
        for rank, spans in enumerate(stage_spans([record], world, zero)):
            for kind, start, end in spans:
                events.append(
                    {
                        "name": _NAMES[kind],
                        "cat": kind,
                        "ph": "X",
                        "pid": 0,
                        "tid": rank,
                        "ts": round(start * 1e3, 1),
                        "dur": round((end - start) * 1e3, 1),
                        "args": about,
                    }
                )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
