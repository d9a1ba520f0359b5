"""Figures of the last seconds and timelines, from records written by hand (milliseconds below, nanoseconds there)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving.figures import WINDOW_NS, Rates, Shares, stage_shares, timeline
from ropeway.serving.underway import RoundRecord
from ropeway.wire import Done

MS = 1_000_000


Dones = Mapping[int, tuple[int, int, int]]


def record(at: int, own: int, back: int, head: int, dones: Dones, *, parts: int = 1, waited: int = 0) -> RoundRecord:
    """A round launched at `at` ms; `dones` give (wait_rows, forward, wait_send) ms."""
    return RoundRecord(
        number=1,
        rows=parts,
        parts=parts,
        launched_ns=at * MS,
        sent_ns=(at + own) * MS,
        back_ns=(at + back) * MS,
        landed_ns=(at + back + head) * MS,
        own_ns=own * MS,
        head_ns=head * MS,
        wait_rows_ns=waited * MS,
        wait_send_ns=MS,
        dones={rank: Done(rank, (), *(value * MS for value in given)) for rank, given in dones.items()},
    )


def test_shares_of_a_stage() -> None:
    window = 100 * MS
    records = [
        record(0, 10, 40, 5, {1: (12, 20, 3)}, waited=28),
        record(50, 10, 40, 5, {1: (12, 20, 3)}, waited=28),
    ]
    assert stage_shares(records, 0, 100 * MS, window) == Shares(0.30, 0.56, 0.02)
    assert stage_shares(records, 1, 100 * MS, window) == Shares(0.40, 0.24, 0.06)
    assert stage_shares(records, 1, 100 * MS, window).other == pytest.approx(0.30)
    # The first one landed at 45, before the window of one at 146 begins.
    assert stage_shares(records, 0, 146 * MS, window) == Shares(0.15, 0.28, 0.01)
    assert stage_shares(records, 2, 100 * MS, window) == Shares(0.0, 0.0, 0.0)
    # A round longer than the window fills it, and no more.
    assert stage_shares([record(0, 300, 400, 5, {})], 0, 405 * MS, window) == Shares(1.0, 0.0, 0.01)
    assert Shares(0.9, 0.2, 0.1).other == 0.0


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


def test_a_timeline_draws_each_stage_behind_the_one_before_it() -> None:
    one = record(100, 10, 40, 5, {1: (3, 12, 0), 2: (9, 14, 1)}, waited=30)
    assert timeline([one], 3, 90 * MS) == [
        {"rank": 0, "spans": [["forward", 10.0, 20.0], ["wait_rows", 20.0, 50.0], ["forward", 50.0, 55.0]]},
        {"rank": 1, "spans": [["wait_rows", 17.0, 20.0], ["forward", 20.0, 32.0]]},
        {"rank": 2, "spans": [["wait_rows", 23.0, 32.0], ["forward", 32.0, 46.0], ["wait_send", 46.0, 47.0]]},
    ]


def test_parts_overlap_in_a_timeline() -> None:
    # Rank 1 begins once the first of four parts has come, after a quarter of rank 0's time.
    one = record(0, 40, 60, 2, {1: (0, 44, 0)}, parts=4, waited=20)
    assert timeline([one], 2, 0)[1] == {"rank": 1, "spans": [["forward", 10.0, 54.0]]}


def test_a_stage_that_has_not_said_done_is_left_out() -> None:
    first, second = record(0, 10, 30, 2, {1: (1, 15, 0)}), record(40, 10, 30, 2, {})
    assert [len(line["spans"]) for line in timeline([first, second], 2, 0)] == [4, 2]  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(0, 40), *(st.integers(0, 50) for _ in range(6)), st.integers(1, 4)), max_size=12))
def test_spans_never_overlap_nor_run_backwards(rounds: list[tuple[int, ...]]) -> None:
    records, at = [], 0
    for gap, own, back, head, wait, forward, send, parts in rounds:
        at += gap
        records.append(record(at, own, own + back, head, {1: (wait, forward, send)}, parts=parts, waited=back))
        at += own + back + head
    for line in timeline(records, 2, 20 * MS):
        end = 0.0
        spans = line["spans"]
        assert isinstance(spans, list)
        for _, start, stop in spans:
            assert end <= start < stop
            end = stop


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
