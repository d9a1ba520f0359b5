"""Predicted against measured: when a difference stands, what is said of it, and what is learned."""

from __future__ import annotations

import pytest

from ropeway.placement.cost import Price, Spot, price
from ropeway.placement.drift import ENOUGH, Drift, Round, drift, propose
from ropeway.placement.facts import Cost, Costs, Fleet, Layer, Link, Model, Node
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted

MODEL = Model("m", (Layer("a", 1000),) * 10, 0)
FLEET = Fleet(tuple(Node(name, 7500, {"a": Costs(Cost(1.0))}) for name in "ab"), link=Link(0.25, 1e12))
WANTED = Wanted(part=1, prompt=1, context=1)
LAYOUT = (Spot("a", 0, 5), Spot("b", 5, 10))


def predicted() -> Price:
    return price(MODEL, FLEET, WANTED, Goal(1), LAYOUT)


def after(rounds: list[Round]) -> Drift:
    found = drift(predicted(), rounds)
    assert found is not None
    return found


def steady(a: float, b: float, wire: float = 0.5) -> list[Round]:
    return [Round((a, b), wire)] * ENOUGH


def test_what_is_as_predicted_has_no_cause() -> None:
    found = after(steady(5.2, 5.6))
    assert found.predicted_ms == pytest.approx(10.5)
    assert found.measured_ms == pytest.approx(11.3)
    assert found.stages == pytest.approx((1.04, 1.12))
    assert found.cause == ""


def test_too_few_rounds_say_nothing() -> None:
    assert drift(predicted(), steady(9, 9)[1:]) is None


def test_only_the_latest_rounds_count() -> None:
    assert after(steady(50, 50) + steady(5, 5)).cause == ""


@pytest.mark.parametrize(
    ("rounds", "cause"),
    [
        (steady(5, 8), "rank 1 (b) takes 1.60 times as long, and evenly: a slower clock"),
        ([Round((5, ms), 0.5) for ms in (5.5, 9, 6, 12) * 8], "and unevenly: another process has the machine"),
        (steady(5, 5, 4), "a busy or slower link"),
        (steady(8, 8), "all alike"),
        (steady(2, 5), "rank 0 (a) takes 0.40 of its time: it was calibrated while the machine was busy"),
    ],
)
def test_a_standing_difference_has_a_likely_cause(rounds: list[Round], cause: str) -> None:
    assert cause in after(rounds).cause


def test_a_node_that_became_slow_gets_fewer_layers() -> None:
    problem = Problem(MODEL, FLEET, WANTED, Goal(1), Pins(order=("a", "b")))
    found = propose(problem, LAYOUT, (5.0, 20.0))
    # b takes 4 ms a layer now: 5 + 20 + 0.5 ms; a holds at most 7 layers (7,500 bytes): 7 + 12 + 0.5
    assert found.running.decode_ms == pytest.approx(25.5)
    assert [(s.first, s.end) for s in found.best.layout] == [(0, 7), (7, 10)]
    assert found.gain == pytest.approx(1 - 19.5 / 25.5)


def test_a_ring_that_is_cut_well_has_nothing_to_gain() -> None:
    problem = Problem(MODEL, FLEET, WANTED, Goal(1), Pins(order=("a", "b")))
    best = propose(problem, LAYOUT, (5.0, 5.0))
    assert best.gain == pytest.approx(0.0)
