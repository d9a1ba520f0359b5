"""The choice of a part's size, against arithmetic done by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving.part_size import SIZES, Cost, best_part, prompt_ms

STAGE = Cost(fixed_ms=7.0, row_ms=1.7)


def test_equal_parts_take_n_plus_s_minus_1_stage_times() -> None:
    # 8 parts of 512 rows on 2 stages: (8 + 2 - 1) x (7 + 512 x 1.7) = 9 x 877.4
    assert prompt_ms(4096, 512, [STAGE] * 2) == pytest.approx(9 * 877.4)
    # and on one stage 8 x 877.4: the overlap gives 16 / 9 of the speed of one stage that holds both halves
    assert 2 * prompt_ms(4096, 512, [STAGE]) / prompt_ms(4096, 512, [STAGE] * 2) == pytest.approx(16 / 9)


def test_the_published_prompt_of_32k() -> None:
    # 9 chunks of 1.55 s and one link transfer of 0.73 s: 9 x 1.55 + 0.73 = 14.7 s (8 chunks of 4,096 rows on 2 stages)
    half, link = Cost(0.0, 1550 / 4096), Cost(0.0, 730 / 4096)
    assert prompt_ms(8 * 4096, 4096, [half, link, half]) == pytest.approx(9 * 1550 + 730)


def test_a_lone_stage_takes_the_largest_part() -> None:
    assert best_part(4096, 512, [STAGE]) == 512


def test_a_fixed_cost_makes_parts_larger_and_more_stages_make_them_smaller() -> None:
    def chosen(fixed_ms: float, stages: int) -> int:
        return best_part(2048, 2048, [Cost(fixed_ms, 1.0)] * stages)

    assert [chosen(fixed, 2) for fixed in (0.1, 10, 200)] == sorted(chosen(fixed, 2) for fixed in (0.1, 10, 200))
    assert chosen(10, 8) < chosen(10, 2)


def test_a_slow_link_counts_as_a_stage() -> None:
    slow = Cost(0.0, 20.0)
    assert prompt_ms(2048, 256, [STAGE, slow, STAGE]) > 2048 * 20


def test_a_line_through_two_measurements() -> None:
    assert Cost.through((1, 9.0), (65, 73.0)) == Cost(8.0, 1.0)
    assert Cost.through((1, 9.0), (65, 8.0)) == Cost(9.0, 0.0)


@given(
    st.integers(1, 5000),
    st.integers(1, 4096),
    st.lists(st.builds(Cost, st.floats(0, 50), st.floats(0.001, 5)), min_size=1, max_size=5),
)
def test_the_choice_is_the_best_of_what_may_be_chosen(rows: int, most: int, steps: list[Cost]) -> None:
    part = best_part(rows, most, steps)
    assert part <= most
    for size in SIZES:
        if size <= most:
            assert prompt_ms(rows, part, steps) <= prompt_ms(rows, size, steps)
