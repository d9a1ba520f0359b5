"""Rounds as a Chrome trace, written and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ropeway.serving.trace import MOST_ROUNDS, Tracer, chrome_trace
from serving.records import record

NAMES = ("rank 0: layers 0..2", "rank 1: layers 2..4")


def read(path: Path) -> list[dict[str, Any]]:
    """The file's events, each of a kind that the format has, with what that kind needs."""
    events = json.loads(path.read_text())["traceEvents"]
    assert isinstance(events, list)
    needs = {"M": {"args"}, "X": {"ts", "dur", "tid"}, "s": {"ts", "id", "tid"}, "f": {"ts", "id", "tid"}}
    for event in events:
        assert needs[event["ph"]] <= set(event)
        assert event.get("ts", 0) >= 0
    return events


def test_two_stages_of_one_round(tmp_path: Path) -> None:
    tracer = Tracer()
    tracer.take(record(100, 5, 11, 2, {1: (3, 4, 0)}, waited=4, number=7))
    tracer.write(tmp_path / "trace.json", NAMES)
    events = read(tmp_path / "trace.json")
    spans = [(e["tid"], e["cat"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert spans == [
        (0, "forward", 0.0, 5000.0),
        (0, "wait_rows", 7000.0, 4000.0),
        (0, "forward", 11000.0, 2000.0),
        (1, "wait_rows", 2000.0, 3000.0),
        (1, "forward", 5000.0, 4000.0),
    ]
    assert {event["args"]["round"] for event in events if event["ph"] == "X"} == {7}
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"] == list(NAMES)
    arrow, head = (event for event in events if event["ph"] in "sf")
    assert (arrow["ph"], arrow["tid"], arrow["ts"], head["ph"], head["tid"], head["ts"]) == ("s", 0, 0.0, "f", 1, 5000)
    assert arrow["id"] == head["id"]


def test_rounds_do_not_share_arrows(tmp_path: Path) -> None:
    tracer = Tracer()
    for number in range(20):
        tracer.take(record(20 * number, 5, 11, 2, {1: (3, 4, 0), 2: (4, 1, 0)}, waited=4, number=number + 1))
    tracer.write(tmp_path / "trace.json", (*NAMES, "rank 2"))
    arrows = [event["id"] for event in read(tmp_path / "trace.json") if event["ph"] == "s"]
    assert len(arrows) == len(set(arrows)) == 40


def test_no_rounds() -> None:
    trace = chrome_trace([], ("a", "b", "c"))
    assert {event["ph"] for event in trace["traceEvents"]} == {"M"}  # type: ignore[attr-defined]


def test_a_trace_keeps_the_first_rounds() -> None:
    tracer = Tracer()
    one = record(0, 5, 11, 2, {})
    for _ in range(MOST_ROUNDS + 5):
        tracer.take(one)
    assert len(tracer.records) == MOST_ROUNDS
