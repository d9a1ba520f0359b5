"""Sets of byte ranges, half-open, as sorted tuples of pairs that neither touch nor overlap. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def union(ranges: Iterable[Range]) -> Ranges:
    """All bytes of `ranges`, which may overlap and come in any order; empty ones vanish."""
    merged: list[Range] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def held_until(ranges: Ranges, at: int) -> int:
    """Where the run of held bytes that `at` lies in ends; `at` itself where that byte is not held."""
    for start, end in ranges:
        if start <= at < end:
            return end
    return at


def next_start(ranges: Ranges, at: int, default: int, least: int = 0) -> int:
    """Where the first range behind `at` of at least `least` bytes starts; `default` where there is none."""
    return min((start for start, end in ranges if start > at and end - start >= least), default=default)


def covers(ranges: Ranges, start: int, end: int) -> bool:
    """Whether every byte of start..end is held."""
    return start >= end or held_until(ranges, start) >= end


def total(ranges: Ranges) -> int:
    """Bytes in all."""
    return sum(end - start for start, end in ranges)
