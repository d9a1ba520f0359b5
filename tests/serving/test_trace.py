"""Rounds as a Chrome trace."""

from __future__ import annotations

import json

from ropeway.serving.trace import chrome_trace
from ropeway.serving.underway import RoundRecord
from ropeway.wire import Done

MS = 1_000_000


def test_two_stages_of_one_round() -> None:
    record = RoundRecord(7, rows=1, parts=1, launched_ns=100 * MS)
    record.sent_ns, record.own_ns, record.wait_rows_ns = 105 * MS, 5 * MS, 4 * MS
    record.back_ns, record.head_ns, record.landed_ns = 111 * MS, 2 * MS, 113 * MS
    record.dones[1] = Done(1, (), 3 * MS, 4 * MS, 0)
    trace = chrome_trace([record], 2)
    json.dumps(trace)
    events = trace["traceEvents"]
    assert isinstance(events, list)
    spans = [(e["tid"], e["cat"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert spans == [
        (0, "forward", 0.0, 5000.0),
        (0, "wait_rows", 7000.0, 4000.0),
        (0, "forward", 11000.0, 2000.0),
        (1, "wait_rows", 2000.0, 3000.0),
        (1, "forward", 5000.0, 4000.0),
    ]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"rank 0", "rank 1"}


def test_no_rounds() -> None:
    assert chrome_trace([], 3)["displayTimeUnit"] == "ms"
