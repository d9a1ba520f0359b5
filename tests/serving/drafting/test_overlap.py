"""Verify rounds cut into parts: fewest where rows are free, many where they are dear and stages would idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving.drafting.cost import CostLine
from ropeway.serving.drafting.overlap import MOST_A_STAGE, best_cut
from ropeway.serving.scheduler import Scheduler, apart
from serving.turns import ask, planned, turn


def line(fixed_s: float, row_s: float) -> CostLine:
    found = CostLine()
    for rows in [1, 4, 16] * 20:
        found.observe(rows, fixed_s + row_s * rows)
    return found


def makespan(parts: tuple[int, ...], stages: int, fixed_s: float, row_s: float) -> float:
    """Rows through equal stages, part by part: the clock at which each stage is free."""
    free = [0.0] * stages
    for rows in parts:
        done = 0.0
        for stage in range(stages):
            done = free[stage] = max(done, free[stage]) + fixed_s + row_s * rows
    return free[-1]


@given(st.integers(1, 32), st.integers(1, 6), st.floats(0.0001, 0.01), st.floats(0.00001, 0.01))
def test_no_equal_cut_is_quicker(rows: int, stages: int, fixed_s: float, row_s: float) -> None:
    stage = line(fixed_s, row_s)
    chosen = best_cut(rows, stages, stage)
    assert sum(chosen) == rows
    assert max(chosen) - min(chosen) <= 1
    share = min(1.0, row_s / (fixed_s + row_s))
    single_s = fixed_s + row_s
    took = makespan(chosen, stages, single_s * (1 - share), single_s * share)
    for count in range(1, min(rows, MOST_A_STAGE * stages) + 1):
        size, larger = divmod(rows, count)
        other = (size + 1,) * larger + (size,) * (count - larger)
        assert took <= 1.1 * makespan(other, stages, single_s * (1 - share), single_s * share)


def test_what_it_comes_to() -> None:
    """A lone CPU a stage: a part of 4 rows takes 19.5 ms, 16 rows in 4 parts over 2 stages 5 of them, in one 2 x 69."""
    cpu, card = line(0.0031, 0.0041), line(0.01, 0.0001)
    assert best_cut(16, 2, cpu) == (4, 4, 4, 4)
    assert best_cut(16, 2, card) == best_cut(16, 1, cpu) == best_cut(16, 2, CostLine()) == (16,)
    assert best_cut(1, 4, cpu) == (1,)


@pytest.mark.parametrize(
    ("streams", "ranges"), [(1, [(0, 1), (1, 2), (2, 3)]), (2, [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6)])]
)
def test_rows_apart_are_parts_of_their_own(streams: int, ranges: list[tuple[int, int]]) -> None:
    one = Scheduler(4, 8, 40, 64, 256, propose=lambda _, most: [1, 2][:most], cut=apart)
    for number in range(streams):
        one.add(ask(number, 3))
    turn(one)
    assert planned(one).plan.part_ranges() == ranges
