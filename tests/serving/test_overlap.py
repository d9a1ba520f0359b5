"""How well stages work side by side, from records written by hand (milliseconds)."""

from __future__ import annotations

import pytest

from ropeway.serving.overlap import Overlap, overlap, trips
from serving.records import MS, record


def efficiency(found: Overlap | None) -> float:
    assert found is not None
    return found.efficiency


def told(found: Overlap | None) -> tuple[float, float]:
    assert found is not None
    return found.at_work, found.possible


def test_a_lone_streams_round_loses_what_no_stage_computes() -> None:
    # 10 ms in rank 0, 2 of head, 20 in rank 1, 5 on the wire: 32 of 37 ms are computing, by one stage at a time.
    found = overlap([record(0, 10, 35, 2, {1: (0, 20, 0)})], 2, 0)
    assert told(found) == pytest.approx((32 / 37, 1.0))
    assert efficiency(found) == pytest.approx(32 / 37)


def test_parts_are_held_against_n_plus_s_minus_1() -> None:
    # 8 parts of 10 ms on two stages: 90 ms at best, so 160 / 90 stages at work; it took 100.
    found = overlap([record(0, 80, 100, 0, {1: (0, 80, 0)}, parts=8)], 2, 0)
    assert told(found) == pytest.approx((1.6, 16 / 9))
    assert efficiency(found) == pytest.approx(0.9)


def test_rounds_that_bring_nothing_back_belong_to_the_next_that_does() -> None:
    dones = {1: (0, 20, 0)}
    rounds = [record(20 * at, 20, 0, 0, dones, parts=2, number=at) for at in range(3)]
    rounds.append(record(60, 20, 40, 0, dones, parts=2, number=3))
    (trip,) = trips(rounds, 2)
    assert (trip.launched_ns, trip.landed_ns, trip.parts) == (0, 100 * MS, 8)
    assert trip.forward_ns == (80 * MS, 80 * MS)
    assert efficiency(overlap(rounds, 2, 0)) == pytest.approx(0.9)


def test_groups_are_held_against_the_busiest_stage() -> None:
    # Two rounds under way at any time, each 20 ms there and back with 10 ms a stage: both stages at work all the time.
    rounds = [record(10 * at, 10, 20, 0, {1: (0, 10, 0)}, number=at) for at in range(50)]
    found = overlap(rounds, 2, 0)
    assert found is not None
    assert found.at_work == pytest.approx(2, rel=0.03)
    assert found.efficiency == 1.0
    # Four under way do no better, and are not held to be worse.
    rounds = [record(10 * at, 10, 40, 0, {1: (20, 10, 0)}, number=at) for at in range(50)]
    assert efficiency(overlap(rounds, 2, 0)) == pytest.approx(0.95, abs=0.02)
    # A round at a time that could have been two: half of what the stages can do, all that one stream can.
    rounds = [record(20 * at, 10, 20, 0, {1: (0, 10, 0)}, number=at) for at in range(50)]
    assert overlap(rounds, 2, 0) == Overlap(1.0, 1.0)


def test_only_what_is_over_and_reported_counts() -> None:
    whole = record(0, 10, 35, 2, {1: (0, 20, 0)})
    silent = record(100, 10, 35, 2, {})
    under_way = record(200, 10, 35, 2, {1: (0, 20, 0)})
    under_way.landed_ns = under_way.back_ns = 0
    closing = record(50, 0, 0, 0, {})
    closing.rows = closing.parts = 0
    assert len(trips([whole, closing, silent, under_way], 2)) == 1
    assert overlap([whole, silent], 2, 0) == overlap([whole], 2, 0)
    assert overlap([whole], 2, 38 * MS) is None
    assert overlap([], 3, 0) is None


def test_one_stage() -> None:
    found = overlap([record(0, 18, 18, 0, {}), record(20, 18, 18, 0, {})], 1, 0)
    assert found == Overlap(1.0, 1.0)
