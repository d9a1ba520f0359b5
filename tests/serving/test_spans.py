"""Rounds drawn as spans a stage, from records written by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving.spans import draw, timeline
from serving.records import MS, record


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


def test_a_slow_stage_in_front_makes_the_next_wait_between_parts() -> None:
    # Rank 0 has a part every 20 ms, rank 1 takes 5 for each; it waits before the first one and between them.
    one = record(0, 60, 70, 0, {1: (50, 15, 0)}, parts=3)
    assert timeline([one], 2, 0)[1]["spans"] == [
        ["wait_rows", 0.0, 20.0], ["forward", 20.0, 25.0], ["wait_rows", 25.0, 40.0], ["forward", 40.0, 45.0],
        ["wait_rows", 45.0, 60.0], ["forward", 60.0, 65.0],
    ]  # fmt: skip


def test_a_stage_does_one_thing_after_the_other() -> None:
    # Two rounds of a prompt, 10 ms apart in rank 0, that take rank 1 30 ms each: the second one begins at 40.
    rounds = [record(0, 10, 0, 0, {1: (0, 30, 0)}), record(10, 10, 80, 0, {1: (0, 30, 0)}, waited=60)]
    assert timeline(rounds, 2, 0)[1]["spans"] == [["forward", 10.0, 70.0]]
    assert [(span.start_ns // MS, span.end_ns // MS) for span in draw(rounds, 2)[1]] == [(10, 40), (40, 70)]


def test_rank_0_waits_for_buffers_between_its_parts() -> None:
    one = record(0, 20, 40, 0, {})
    one.parts, one.sent_ns, one.wait_send_ns = 2, 30 * MS, 10 * MS
    assert timeline([one], 1, 0)[0]["spans"] == [
        ["forward", 0.0, 10.0], ["wait_send", 10.0, 15.0], ["forward", 15.0, 25.0], ["wait_send", 25.0, 30.0],
    ]  # fmt: skip


def test_a_stage_that_has_not_said_done_is_left_out() -> None:
    first, second = record(0, 10, 30, 2, {1: (1, 15, 0)}), record(40, 10, 30, 2, {})
    assert [len(line["spans"]) for line in timeline([first, second], 2, 0)] == [4, 2]  # type: ignore[arg-type]


Rounds = st.lists(
    st.tuples(st.integers(0, 40), *(st.integers(0, 50) for _ in range(6)), st.integers(1, 4)), max_size=12
)


@given(Rounds)
def test_every_forward_is_drawn_whole(rounds: list[tuple[int, ...]]) -> None:
    records, at = [], 0
    for gap, own, back, head, wait, forward, send, parts in rounds:
        at += gap
        records.append(record(at, own, own + back, head, {1: (wait, forward, send)}, parts=parts, waited=back))
        at += own + back + head
    drawn = draw(records, 2)
    for one in records:
        for rank, expected in ((0, one.own_ns + one.head_ns), (1, one.dones[1].forward_ns)):
            mine = [s.end_ns - s.start_ns for s in drawn[rank] if s.record is one and s.kind == "forward"]
            assert sum(mine) == pytest.approx(expected, abs=1000 * (one.parts + 1))


@given(Rounds)
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
