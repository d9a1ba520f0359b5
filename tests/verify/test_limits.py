"""Limits: each is broken by its own figure alone, bits count where they are promised, and words become numbers."""

from __future__ import annotations

import math

import pytest

from ropeway.verify.compare import Comparison
from ropeway.verify.limits import Limits, parse_limits


def good(**changes: object) -> Comparison:
    comparison = Comparison(100, 90, 0.01, 99, 99.5, [0.0] * 90 + [1e-4] * 10)
    for name, value in changes.items():
        object.__setattr__(comparison, name, value)
    return comparison


def test_a_good_one_breaks_none() -> None:
    assert Limits().broken(good(), bits=False) == []


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (good(divergences=[0.006] * 100), "kl_mean: 0.006, at most 0.005"),
        (good(divergences=[0.0] * 98 + [0.06] * 2), "kl_p99: 0.06, at most 0.05"),
        (good(divergences=[0.0] * 999 + [0.6], top5_share=995.0), "kl_max: 0.6, at most 0.5"),
        (good(top1_equal=89), "top1: 0.8900, at least 0.9"),
        (good(top5_share=80.0), "top5: 0.8000, at least 0.9"),
    ],
)
def test_each_by_its_own_figure(comparison: Comparison, words: str) -> None:
    assert Limits().broken(comparison, bits=False) == [words]


def test_what_is_not_a_number_breaks_a_limit() -> None:
    broken = Limits(max_abs_diff=1.0).broken(good(max_abs_diff=math.nan, divergences=[math.nan] * 100), bits=False)
    assert [line.split(":")[0] for line in broken] == ["kl_mean", "kl_p99", "kl_max", "max_abs_diff"]


def test_bits_where_they_are_promised() -> None:
    assert Limits().broken(good(), bits=True) == ["bits: 10 of 100 steps differ"]
    assert Limits().broken(good(equal_steps=100), bits=True) == []


def test_tokens_alone_have_one_limit() -> None:
    tokens = Comparison(10, 8, top1_equal=8)
    assert Limits().broken(tokens, bits=False) == ["top1: 0.8000, at least 0.9"]


def test_words_to_numbers() -> None:
    assert parse_limits("kl_mean=0.5, top1=0.25") == Limits(kl_mean=0.5, top1=0.25)
    assert parse_limits("") == Limits()
    for text, message in (
        ("speed=1", "'speed' is none of kl_mean"),
        ("top1=x", "expected a number"),
        ("top1=nan", "top1"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_limits(text)
