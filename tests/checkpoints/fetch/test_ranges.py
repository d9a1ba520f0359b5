"""Sets of ranges against sets of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ropeway.checkpoints.fetch.ranges import Range, covers, held_until, next_start, total, union

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def numbers(ranges: list[Range]) -> set[int]:
    return {number for start, end in ranges for number in range(start, end)}


@given(pairs, st.integers(0, 40), st.integers(0, 40))
def test_ranges_are_sets(ranges: list[Range], start: int, end: int) -> None:
    held, known = union(ranges), numbers(ranges)
    assert numbers(list(held)) == known
    assert total(held) == len(known)
    assert all(before[1] < after[0] for before, after in pairwise(held))
    assert covers(held, start, end) == (set(range(start, end)) <= known)
    until = held_until(held, start)
    assert set(range(start, until)) <= known
    assert until not in known
    behind = [number for number in known if number > start and number - 1 not in known]
    assert next_start(held, start, 99) == min(behind, default=99)
    long = [number for number in behind if {number, number + 1, number + 2} <= known]
    assert next_start(held, start, 99, 3) == min(long, default=99)
