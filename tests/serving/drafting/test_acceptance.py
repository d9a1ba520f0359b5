"""Shares of right guesses: priors first, then the ring's count, then the sequence's own."""

from __future__ import annotations

import pytest

from ropeway.serving.drafting.acceptance import RING_MEMORY, Acceptance


def test_priors_hold_until_something_is_seen() -> None:
    one = Acceptance((0.2, 0.9))
    assert one.priors == (0.2, 0.9)
    assert [one.rate(grade) for grade in (0, 1)] == pytest.approx([0.2, 0.9])
    assert one.rate(1, 7) == one.rate(1)


def test_only_what_was_judged_counts() -> None:
    """The first wrong guess ends a proposal; those behind it might have been right."""
    one = Acceptance((0.5, 0.5, 0.5))
    one.observe(1, (0, 1, 2, 2), 1)
    assert one.rate(0) > 0.5 > one.rate(1)
    assert one.rate(2) == 0.5
    one.observe(1, (2, 2), 2)
    assert one.rate(2) > 0.5


def test_a_sequence_is_its_own_and_a_new_one_starts_from_the_rings() -> None:
    one = Acceptance((0.5,))
    for _ in range(40):
        one.observe(1, (0,), 0)
        one.observe(2, (0,), 1)
    assert one.rate(0, 1) < 0.2 < 0.8 < one.rate(0, 2)
    assert one.rate(0, 3) == one.rate(0) == pytest.approx(0.5, abs=0.01)
    one.forget(1)
    one.forget(99)
    assert one.rate(0, 1) == one.rate(0)


def test_old_counts_fade() -> None:
    one = Acceptance((0.5,))
    for _ in range(2000):
        one.observe(1, (0,), 0)
    for _ in range(int(RING_MEMORY)):
        one.observe(1, (0,), 1)
    assert one.rate(0, 1) > 0.9
    assert one.rate(0) > 0.6
