"""Figures of the last seconds, from records written by hand (milliseconds below, nanoseconds there)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving.figures import WINDOW_NS, Rates, Shares, reach_ns, stage_shares
from serving.records import MS, record


def test_shares_of_a_stage() -> None:
    window = 100 * MS
    records = [
        record(0, 10, 40, 5, {1: (12, 20, 3)}, waited=28),
        record(50, 10, 40, 5, {1: (12, 20, 3)}, waited=28),
    ]
    # A round is 40 ms there and back, 10 in rank 0 and 20 in rank 1: 10 on the wire, 5 a hop.
    assert stage_shares(records, 0, 2, 100 * MS, window) == Shares(0.30, 0.56, 0.02, 0.12)
    assert stage_shares(records, 1, 2, 100 * MS, window) == Shares(0.40, 0.24, 0.06, 0.16)
    assert stage_shares(records, 1, 2, 100 * MS, window).other == pytest.approx(0.30)
    assert stage_shares(records, 1, 2, 100 * MS, window).waiting == pytest.approx(0.14)
    # The first one landed at 45, before the window of one at 146 begins.
    assert stage_shares(records, 0, 2, 146 * MS, window) == Shares(0.15, 0.28, 0.01, 0.06)
    assert stage_shares(records, 2, 3, 100 * MS, window) == Shares(0.0, 0.0, 0.0)
    # A round longer than the window fills it, and no more.
    assert stage_shares([record(0, 300, 400, 5, {})], 0, 2, 405 * MS, window) == Shares(1.0, 0.0, 0.01, 0.01)
    assert Shares(0.9, 0.2, 0.1).other == 0.0


def test_the_wire_is_told_from_rounds_that_had_the_ring_for_themselves() -> None:
    beside = record(0, 10, 40, 5, {1: (12, 20, 3)}, waited=28)
    beside.alone = False
    assert stage_shares([beside], 1, 2, 45 * MS, 100 * MS).wire == 0.03, "waits for a buffer alone"
    # More than a stage has waited is none of its wire.
    assert stage_shares([record(0, 10, 90, 5, {1: (12, 20, 0)})], 1, 2, 95 * MS, 100 * MS).wire == 0.12


def test_shares_are_of_what_is_on_record() -> None:
    """A quick ring has more rounds in a window than are kept: those that are kept say how it was since the first."""
    rounds = [record(at, 4, 8, 1, {1: (5, 4, 0)}, waited=4) for at in range(0, 100, 10)]
    assert reach_ns(rounds, 100 * MS, 1000 * MS, 11) == 1000 * MS
    window = reach_ns(rounds, 100 * MS, 1000 * MS, 10)
    assert window == 100 * MS
    assert stage_shares(rounds, 0, 2, 100 * MS, window).forward == 0.5
    assert reach_ns(rounds, 100 * MS, 50 * MS, 10) == 50 * MS


def test_what_the_wire_costs() -> None:
    # 40 ms there and back, 10 in rank 0 and 20 in rank 1.
    assert record(0, 10, 40, 5, {1: (0, 20, 0)}).wire_ns(2) == 10 * MS
    assert record(0, 10, 40, 5, {1: (0, 20, 0)}).wire_ns(3) is None
    assert record(0, 10, 40, 5, {1: (0, 20, 0)}, parts=2).wire_ns(2) is None
    assert record(0, 10, 40, 5, {}).wire_ns(1) is None
    beside = record(0, 10, 40, 5, {1: (0, 20, 0)})
    beside.alone = False
    assert beside.wire_ns(2) is None
    nothing_back = record(0, 10, 40, 5, {1: (0, 20, 0)})
    nothing_back.back_ns = 0
    assert nothing_back.wire_ns(2) is None


@given(st.lists(st.tuples(st.integers(0, WINDOW_NS), st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_rates_are_those_of_the_window(events: list[tuple[int, int, int]]) -> None:
    rates, now, seen = Rates(), 0, []
    for gap, tokens, prompt_tokens in events:
        now += gap
        rates.add(now, tokens, prompt_tokens)
        seen.append((now, tokens, prompt_tokens))
        recent = [event for event in seen if event[0] >= now - WINDOW_NS]
        seconds = WINDOW_NS / 1e9
        expected = sum(event[1] for event in recent) / seconds, sum(event[2] for event in recent) / seconds
        assert rates.per_second(now) == expected
    assert rates.per_second(now + WINDOW_NS + 1) == (0.0, 0.0)
