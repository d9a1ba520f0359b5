"""The figures of a comparison, against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ropeway.verify.compare import Comparison, kl, top_share
from ropeway.verify.passage import passage


def row(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, np.float32)


def test_equal_rows() -> None:
    comparison = Comparison()
    comparison.add(row(1, 2, 3), row(1, 2, 3))
    assert (comparison.steps, comparison.equal_steps, comparison.max_abs_diff, comparison.top1) == (1, 1, 0.0, 1.0)


def test_the_last_bit_counts() -> None:
    comparison = Comparison()
    comparison.add(row(1, 2), row(1, np.nextafter(np.float32(2), np.float32(3))))
    assert comparison.equal_steps == 0
    assert 0 < comparison.max_abs_diff < 1e-6
    comparison.add(row(0.0, 1), row(-0.0, 1))
    assert comparison.equal_steps == 0


def test_divergence_of_two_coins() -> None:
    # p = (1/2, 1/2), q = (3/4, 1/4): KL = 1/2 ln(2/3) + 1/2 ln 2 = 1/2 ln(4/3)
    whole, split = row(0, 0), row(math.log(3), 0)
    assert kl(whole, split) == pytest.approx(0.5 * math.log(4 / 3), abs=1e-7)
    comparison = Comparison()
    comparison.add(split, whole)
    comparison.add(whole, whole)
    assert comparison.kl_mean == pytest.approx(0.25 * math.log(4 / 3), abs=1e-7)
    assert comparison.kl_max == pytest.approx(0.5 * math.log(4 / 3), abs=1e-7)


def test_a_row_that_is_not_a_number_is_infinitely_far() -> None:
    comparison = Comparison()
    comparison.add(row(float("nan"), 0), row(0, 0))
    assert comparison.max_abs_diff == comparison.kl_max == math.inf
    assert comparison.equal_steps == 0


def test_tokens_alone() -> None:
    comparison = Comparison()
    comparison.add_token(3, 3)
    comparison.add_token(3, 4)
    assert (comparison.steps, comparison.equal_steps, comparison.top1) == (2, 1, 0.5)


def test_a_passage_is_long_enough_and_always_the_same() -> None:
    assert len(passage(5000)) >= 5000
    assert passage(300) == passage(300)
    assert passage(300, skip=50) != passage(300)


def test_the_99th_percentile_of_a_hundred_values_is_the_second_largest() -> None:
    comparison = Comparison(divergences=[float(value) for value in range(100)])
    assert (comparison.kl_p99, comparison.kl_max, comparison.kl_mean) == (98.0, 99.0, 49.5)
    assert Comparison(divergences=[3.0]).kl_p99 == 3.0
    assert Comparison().kl_p99 == Comparison().kl_max == 0.0


def test_five_likeliest() -> None:
    whole, split = row(9, 8, 7, 6, 5, 0, 0), row(9, 8, 7, 0, 0, 6, 5)
    assert top_share(whole, split) == pytest.approx(3 / 5)
    comparison = Comparison()
    comparison.add(split, whole)
    comparison.add(whole, whole)
    assert comparison.top5 == pytest.approx(4 / 5)
    assert top_share(row(1, 2), row(2, 1)) == 1.0


def test_where_a_reply_first_parts() -> None:
    comparison = Comparison()
    left, right = row(1, 0), row(0, 1)
    comparison.add(left, right, sequence=0, produced=None)
    comparison.add(left, left, sequence=0, produced=0)
    comparison.add(left, right, sequence=0, produced=3)
    comparison.add(left, right, sequence=0, produced=5)
    comparison.add_token(1, 2, sequence=1, produced=2)
    assert comparison.parted == {0: 3, 1: 2}
    assert comparison.first_parting == 2
    assert Comparison().first_parting is None
