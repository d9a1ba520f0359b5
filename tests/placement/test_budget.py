"""What is said where a model does not fit: the node, the bytes, and what would fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropeway.placement.budget import Infeasible, over_limit
from ropeway.placement.cost import Spot
from ropeway.placement.facts import Cost, Costs, Fleet, Layer, Model, Node
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted

MODEL = Model("m", (Layer("a", 1_000_000, 1000),) * 10, 10)
"""10 MB of weights; 1 kB of f16 KV a layer, position and stream."""


def node(name: str, limit_bytes: int) -> Node:
    return Node(name, limit_bytes, {"a": Costs(Cost(1.0), Cost(1.0))})


def problem(*limits: int, context: int = 1000, streams: int = 4) -> Problem:
    fleet = Fleet(tuple(node(f"n{i}", limit) for i, limit in enumerate(limits)))
    return Problem(MODEL, fleet, Wanted(context=context, streams=streams, part=1, prompt=1), Goal(1))


def refused(asked: Problem) -> Infeasible:
    with pytest.raises(Infeasible) as caught:
        search(asked)
    return caught.value


def test_the_node_that_lacks_least_is_named_with_what_would_fit() -> None:
    # A layer takes 1 MB + 4 x 1000 x 1 kB = 5 MB: n0 holds 4 of them, n1 5 (staging is 40 bytes a stage), one is left:
    # n0 lacks 25 - 22 = 3 MB (and the staging), n1 30 - 26 = 4 MB.
    error = refused(problem(22_000_000, 26_000_000))
    assert error.node == "n0"
    assert error.missing_bytes == pytest.approx(3_000_040, rel=1e-3)
    assert error.limit_bytes == 22_000_000
    # 5 + 5 layers at 22 MB: 4.4 MB a layer, 3.4 MB of KV: 849 positions; q8_0 has 17/32 of the KV
    assert [(fit.what, fit.value) for fit in error.fits] == [
        ("a context of", "849"),
        ("streams:", "3"),
        ("keys and values of type", "q8_0"),
    ]
    assert "n0 may use 22.0 MB and would need 25.0 MB, 3.0 MB more" in str(error)
    assert search(replace(problem(22_000_000, 26_000_000, context=849))).fits
    assert search(problem(22_000_000, 26_000_000, streams=3)).fits


def test_weights_alone_that_do_not_fit_leave_nothing_to_lower() -> None:
    error = refused(problem(3_000_000, 3_000_000))
    assert error.fits == ()
    assert "no smaller context would do" in str(error)


def test_no_node_takes_more_than_it_may_although_one_is_faster() -> None:
    fast = Node("fast", 5_000_000, {"a": Costs(Cost(0.001))})
    found = search(Problem(MODEL, Fleet((fast, node("slow", 10**9))), Wanted(context=1, part=1, prompt=1), Goal(1)))
    assert {s.spot.node: s.spot.end - s.spot.first for s in found.stages} == {"fast": 4, "slow": 6}


def test_pins_that_nothing_keeps_are_no_matter_of_memory() -> None:
    pinned = replace(problem(10**9, 10**9), pins=Pins(ranges={"n0": (0, 4), "n1": (5, 10)}))
    with pytest.raises(ValueError, match="no layout keeps them all"):
        search(pinned)


def test_a_node_that_lied_is_found_out_when_its_stage_is_checked_again() -> None:
    asked = problem(40_000_000, 40_000_000)
    layout = search(asked).layout
    assert over_limit(asked, layout) == []
    honest = replace(asked, fleet=Fleet((node("n0", 1_000_000), node("n1", 40_000_000))))
    over = over_limit(honest, (Spot("n0", 0, 5), Spot("n1", 5, 10)))
    assert over == [("n0", 5 * 5_000_000 + 40 - 1_000_000)]
