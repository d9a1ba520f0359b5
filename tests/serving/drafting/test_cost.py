"""The line through measured rounds: it finds base and row, follows the machine, and forgives a hiccup."""

from __future__ import annotations

import random

import pytest

from ropeway.serving.drafting.cost import FIRST_SHARE, CostLine


def measured(base: float, row: float, rows: list[int], noise: float = 0.0, seed: int = 1) -> CostLine:
    line, rng = CostLine(), random.Random(seed)
    for count in rows:
        line.observe(count, (base + row * count) * rng.lognormvariate(0, noise))
    return line


def test_one_round_is_believed_and_a_further_row_is_taken_for_dear() -> None:
    assert not CostLine().known
    line = CostLine()
    line.observe(1, 0.05)
    assert line.known
    assert line.at(1) == pytest.approx(0.05)
    assert line.row_s == pytest.approx(0.05 * FIRST_SHARE)


@pytest.mark.parametrize(("base", "row"), [(0.058, 0.0085), (0.006, 0.0085), (0.1, 0.0002), (0.0, 0.01)])
@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_base_and_row_are_found(base: float, row: float, noise: float) -> None:
    line = measured(base, row, [1, 1, 2, 5, 9, 1, 17, 1, 4, 24, 1, 8] * 5, noise)
    assert line.at(1) == pytest.approx(base + row, rel=0.02 + noise)
    assert line.at(16) == pytest.approx(base + 16 * row, rel=0.02 + noise)


def test_rounds_of_one_row_say_nothing_about_rows() -> None:
    line = CostLine()
    for seconds in [5.0] + [0.2] * 100:
        line.observe(1, seconds)
    assert line.share == FIRST_SHARE
    assert line.at(1) == pytest.approx(0.2, rel=0.01)


def test_a_machine_that_gets_slower_is_followed() -> None:
    line = measured(0.006, 0.0085, [1, 4] * 20)
    for _ in range(20):
        line.observe(1, 3 * 0.0145)
        line.observe(4, 3 * 0.04)
    assert line.at(4) == pytest.approx(0.12, rel=0.1)


def test_a_round_that_was_held_up_changes_little() -> None:
    line = measured(0.058, 0.0085, [1, 9] * 20)
    before = line.at(9)
    line.observe(9, 5.0)
    assert line.at(9) < 1.4 * before


def test_no_row_costs_less_than_nothing_or_more_than_a_round() -> None:
    for slow, fast in ((1, 9), (9, 1)):
        line = CostLine()
        for _ in range(50):
            line.observe(slow, 0.9)
            line.observe(fast, 0.001)
            assert 0.0 <= line.share <= 1.0
    line = CostLine()
    line.observe(3, 0.0)
    line.observe(1, 0.0)
    assert line.at(1) > 0.0
