"""The bound for a ring's own forwards, against schedules worked out by hand."""

from __future__ import annotations

from replay import least_ns
from ropeway.serving.underway import RoundRecord
from ropeway.wire import Done


def record(own: int, head: int, *forwards: int) -> RoundRecord:
    dones = {rank: Done(rank, forward_ns=forward) for rank, forward in enumerate(forwards, 1)}
    return RoundRecord(1, 8, 1, 0, own_ns=own, head_ns=head, dones=dones)


def test_one_round_under_way_is_the_sum() -> None:
    assert least_ns([record(5, 1, 4)] * 3, 2, 1) == 3 * 10


def test_two_even_stages_are_both_at_work_but_at_the_ends() -> None:
    # rank 0: 5 5 | 1 5 1 5 ... ; rank 1 has 6 a round and is never waited for after the first.
    assert least_ns([record(5, 1, 6)] * 4, 2, 2) == 5 + 4 * 6 + 1


def test_a_slow_round_holds_the_others_up() -> None:
    even = [record(4, 1, 5)] * 6
    slow = [*even[:3], record(4, 1, 15), *even[4:]]
    assert least_ns(slow, 2, 2) - least_ns(even, 2, 2) == 10
    # Where the other stage has slack, its own wavering costs nothing.
    assert least_ns([record(1, 1, 5), record(3, 1, 5), record(1, 1, 5)], 2, 2) == least_ns([record(1, 1, 5)] * 3, 2, 2)
