"""What a ring was predicted to take against its rounds: which rounds count, what is shown, when it is reported."""

from __future__ import annotations

from dataclasses import replace

from fake_engine import Shape
from fake_ranks import layout_of
from ropeway.placement.cost import Spot, price
from ropeway.placement.drift import ENOUGH
from ropeway.placement.facts import Cost, Costs, Fleet, Layer, Link, Model, Node
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Wanted
from ropeway.serving.prediction import STANDING, Prediction, decode_rounds
from ropeway.serving.underway import RoundRecord
from ropeway.types import Layout
from ropeway.wire import Done

MS = 1_000_000
LAYOUT = layout_of(Shape(), 2)
PROBLEM = Problem(
    Model("tiny", (Layer("a", 10),) * 4, 32),
    Fleet(
        tuple(Node(name, 1 << 20, {"a": Costs(Cost(1.0, 0.0, 0.01))}, head=Cost(0.5)) for name in ("a", "b")),
        link=Link(0.25, 1e12),
    ),
    Wanted(),
    Goal(1),
)
SPOTS = [Spot("a", 0, 2), Spot("b", 2, 4)]


def record(
    number: int, own_ms: float = 2.0, other_ms: float = 2.0, *, rows: int = 1, parts: int = 1, wire_ms: float = 0.5
) -> RoundRecord:
    back = round((own_ms + other_ms + wire_ms) * MS)
    done = Done(1, forward_ns=round(other_ms * MS))
    return RoundRecord(
        number, rows, parts, launched_ns=0, back_ns=back, landed_ns=back + 1, own_ns=round(own_ms * MS), dones={1: done}
    )


def prediction(said: list[str]) -> Prediction:
    found = price(PROBLEM.model, PROBLEM.fleet, PROBLEM.wanted, PROBLEM.goal, SPOTS)
    return Prediction(PROBLEM, found, said.append)


def test_only_rounds_of_the_latest_width_count() -> None:
    records = [record(1, rows=3), record(2, rows=1), record(3, rows=64, parts=2), record(4, rows=1)]
    rounds, rows = decode_rounds(records, 2)
    assert (len(rounds), rows) == (2, 1)
    assert rounds[0].stages_ms == (2.0, 2.0)
    assert rounds[0].wire_ms == 0.5
    unfinished = replace(record(5), dones={})
    assert decode_rounds([unfinished], 2) == ([], 0)


def test_without_a_prediction_what_is_measured_is_shown() -> None:
    one = Prediction()
    one.take([record(n) for n in range(ENOUGH - 1)], LAYOUT, 64)
    assert one.show() == {}
    one.take([record(n) for n in range(ENOUGH)], LAYOUT, 64)
    assert one.show() == {
        "rounds": ENOUGH, "rows": 1, "depth": 64, "measured_ms": 4.5, "wire_ms": 0.5,
        "stages": [{"decode_ms": 2.0}, {"decode_ms": 2.0}],
    }  # fmt: skip


def test_the_prediction_is_for_the_depth_and_rows_of_the_rounds() -> None:
    said: list[str] = []
    one = prediction(said)
    # a layer takes 1 + 0.01 x 128 = 2.28 ms at 128 positions; rank 0 has the head as well: 2 x 2.28 + 0.5
    one.take([record(n, 5.06, 4.56) for n in range(ENOUGH)], LAYOUT, 120)
    shown = one.show()
    assert shown["predicted_ms"] == 2 * 2.28 + 0.5 + 2 * 2.28 + 2 * 0.25
    assert shown["stages"] == [
        {"node": "a", "decode_ms": 5.06, "predicted_ms": 5.06, "ratio": 1.0},
        {"node": "b", "decode_ms": 4.56, "predicted_ms": 4.56, "ratio": 1.0},
    ]
    assert shown["cause"] == ""
    assert said == []


def test_a_difference_is_reported_once_when_it_stands() -> None:
    said: list[str] = []
    one = prediction(said)
    slow = [record(n, 5.06, 9.0) for n in range(ENOUGH)]
    for _ in range(STANDING - 1):
        one.take(slow, LAYOUT, 128)
    assert said == []
    for _ in range(3):
        one.take(slow, LAYOUT, 128)
    assert len(said) == 1
    assert "rank 1 (b) takes 1.97 times as long" in said[0]
    one.take([record(n, 5.06, 4.56) for n in range(ENOUGH)], LAYOUT, 128)
    for _ in range(STANDING):
        one.take(slow, LAYOUT, 128)
    assert len(said) == 2


def test_another_layout_is_not_compared() -> None:
    said: list[str] = []
    one = prediction(said)
    other = Layout(LAYOUT.boundary, LAYOUT.checkpoint, 4, ((0, 1), (1, 4)))
    one.take([record(n) for n in range(ENOUGH)], other, 128)
    assert "predicted_ms" not in one.show()
