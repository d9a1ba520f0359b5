"""The tables of a problem as arrays, and the windows of stages under limits. Pure, with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ropeway.placement.tables import Hop, NodeTables, Sums, Tables

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Hops:
    """What hops cost in the goal's terms, by [sender, receiver], and for how long they keep their link."""

    total: Floats
    part: Floats
    round: Floats

    @classmethod
    def of(cls, hops: Sequence[Sequence[Hop]]) -> Hops:
        """From the tables."""
        shape = (len(hops), len(hops))
        flat = [hop for row in hops for hop in row]
        return cls(*(np.array([getattr(hop, name) for hop in flat]).reshape(shape) for name in Hop.__slots__))

    def under(self, part_limit: float, round_limit: float) -> Floats:
        """Their cost where they keep the limits (exclusive), infinite elsewhere."""
        return np.where((self.part < part_limit) & (self.round < round_limit), self.total, np.inf)


@dataclass(frozen=True, slots=True)
class Sets:
    """The sets of so many nodes as bits; for each set and member in turn the member, and the set without it."""

    of: Ints
    node: Ints
    without: Ints

    @classmethod
    def by_size(cls, count: int) -> list[Sets]:
        """For each size from 0 on."""
        sets = np.arange(1 << count)
        members = sets[:, None] >> np.arange(count) & 1
        found = []
        for size in range(count + 1):
            of = sets[members.sum(axis=1) == size]
            at, node = np.nonzero(members[of])
            found.append(cls(of, node, of[at] & ~(1 << node)))
        return found


class Arrays:
    """Everything that a pass reads, made once for its tables."""

    def __init__(self, tables: Tables) -> None:
        first, later, ends = tables.first, tables.later, range(tables.layers + 1)
        self.tables, self.sets = tables, Sets.by_size(len(first))
        self.ahead, self.back = Hops.of(tables.ahead), Hops.of(tables.back)
        self.prefix = np.array([node.total.prefix for node in later])
        self.plus = np.array([node.total.plus for node in later])
        self.last = np.array([node.total.last for node in later])
        self.cuts = np.array([node.cuts for node in later])
        self.once = np.array(tables.once)
        self.alone = np.array([sums.of(0, tables.layers) for sums in tables.alone]) + self.once
        self.begun = np.array([[node.total.of(0, end) for end in ends] for node in first])
        self._room = np.array([node.room for node in later])
        self._slow = [np.array([_stages(sums) for sums in kind]) for kind in _slow(later)]
        self._begins = np.array([[end > 0 == node.room[end] for end in ends] for node in first])
        self._slow_first = [np.array([[sums.of(0, end) for end in ends] for sums in kind]) for kind in _slow(first)]

    def windows(self, part_limit: float, round_limit: float) -> Ints:
        """By later node and end, the smallest first layer under memory and limits (exclusive); the end for none."""
        found = self._room
        for slow, limit in zip(self._slow, (part_limit, round_limit), strict=True):
            if limit < np.inf:
                found = np.maximum(found, (slow < limit).argmax(axis=2))
        return found

    def begins(self, part_limit: float, round_limit: float) -> Bools:
        """By node and end, whether rank 0 may have the layers up to there."""
        found: Bools = self._begins & (self._slow_first[0] < part_limit) & (self._slow_first[1] < round_limit)
        return found


def _slow(nodes: Sequence[NodeTables]) -> tuple[list[Sums], list[Sums]]:
    return [node.part for node in nodes], [node.round for node in nodes]


def _stages(sums: Sums) -> Floats:
    """The figure of every stage by [end, first]; less than any limit where there is no layer."""
    prefix = np.array(sums.prefix)
    found: Floats = prefix[:, None] - prefix + sums.plus
    found[-1] += sums.last
    found[np.triu_indices(len(prefix))] = -np.inf
    return found


def sliding(rows: Floats, kind: Ints, low: Ints, high: Ints) -> Floats:
    """By row r and i: the least of the row's places low[kind[r], i]..high[kind[r], i], infinite where there is none."""
    count, width = rows.shape
    size = high - low
    power = np.maximum(np.frexp(size)[1] - 1, 0)
    power[size <= 0] = 0
    least = np.empty((int(power.max(initial=0)) + 1, count, width))
    least[0] = rows
    for n in range(1, len(least)):
        half, until = 1 << (n - 1), width - (1 << n) + 1
        np.minimum(least[n - 1, :, :until], least[n - 1, :, half : half + until], out=least[n, :, :until])
    begin = power * (count * width) + np.where(size > 0, low, 0)
    end = np.where(size > 0, begin + size - (1 << power), begin)
    at, flat = (np.arange(count) * width)[:, None], least.reshape(-1)
    found: Floats = np.minimum(flat.take(begin[kind] + at), flat.take(end[kind] + at))
    found[(size <= 0)[kind]] = np.inf
    return found
