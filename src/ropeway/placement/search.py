"""The search: which nodes, in which order, with which layers, for the least of the goal's sum. Exact, and pure.

A goal is a sum plus weights times the slowest part and the slowest round. A box of limits on these two holds every
layout whose slowest ones are in it: what it costs is at least the least sum under its upper limits (passes.py), which
one pass finds, plus the weights times its lower ones. Boxes are taken by that bound, the least first, and split until
none is left that could hold better than the best so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, groupby
from math import inf, nextafter
from typing import Final

from ropeway.placement.arrays import Arrays
from ropeway.placement.budget import infeasible
from ropeway.placement.cost import Price, Spot, price
from ropeway.placement.passes import Pass
from ropeway.placement.tables import Found, Problem, Tables, build, priced
from ropeway.placement.wanted import Goal

SAME: Final = 1 + 1e-12
"""Costs this close are equal: fewer nodes win."""
CLOSE: Final = 1.02
"""A layout this close to the best is made better by moving its cuts, before the limits are narrowed."""


@dataclass(frozen=True, slots=True)
class _Ring:
    """Rings of few..most stages, whose rounds have as many rows, and what their slowest part and round weigh."""

    few: int
    most: int
    part: float
    round: float

    def cost(self, found: Found) -> float:
        """What a layout costs."""
        return found.total + self.part * found.part + self.round * found.round


@dataclass(frozen=True, slots=True)
class _Box:
    """Limits on the slowest part and round: from the lower ones on, below the upper ones. No sum is under `floor`."""

    floor: float
    parts: tuple[float, float] = (0.0, inf)
    rounds: tuple[float, float] = (0.0, inf)

    def bound(self, ring: _Ring) -> float:
        """What no layout in it costs less than."""
        return self.floor + ring.part * self.parts[0] + ring.round * self.rounds[0]

    def within(self, ring: _Ring, best: float) -> _Box:
        """Without what costs `best` or more whatever the sum."""
        left = best - self.bound(ring)
        (a, b), (c, d) = self.parts, self.rounds
        b = min(b, a + left / ring.part) if ring.part else b
        d = min(d, c + left / ring.round) if ring.round else d
        return replace(self, parts=(a, b), rounds=(c, d))

    def without(self, ring: _Ring, found: Found) -> Iterator[_Box]:
        """What is left beside `found`, which has the least sum here: whatever costs less has a smaller maximum."""
        (a, b), (c, d) = self.parts, self.rounds
        part, round_ = min(found.part, b), min(found.round, d)
        if ring.part and a < part:
            yield _Box(found.total, (a, part), (c, d))
        if ring.round and c < round_:
            yield _Box(found.total, (max(a, part) if ring.part else a, b), (c, round_))

    def sizes(self, ring: _Ring) -> tuple[float, float]:
        """Its sides in the goal's terms."""
        (a, b), (c, d) = self.parts, self.rounds
        return (b - a) * ring.part if ring.part else 0.0, (d - c) * ring.round if ring.round else 0.0

    def halves(self, ring: _Ring) -> list[_Box]:
        """Two boxes, cut across the longer side; itself where floats end."""
        part, round_ = self.sizes(ring)
        low, high = self.parts if part >= round_ else self.rounds
        middle = (low + high) / 2
        if not low < middle < high:
            return [self]
        if part >= round_:
            return [replace(self, parts=(low, middle)), replace(self, parts=(middle, high))]
        return [replace(self, rounds=(low, middle)), replace(self, rounds=(middle, high))]


def search(problem: Problem) -> Price:
    """The layout with the least cost. Raises Infeasible, with numbers, and ValueError for pins that contradict."""
    found = search_if_any(problem)
    if found is None:
        raise infeasible(problem)
    return found


def search_if_any(problem: Problem) -> Price | None:
    """The same; None where no layout keeps memory and pins. Raises ValueError for pins that name no node or range."""
    found = _Search(problem).cheapest()
    if found is None:
        return None
    return price(problem.model, problem.fleet, problem.wanted, problem.goal, spots(problem, found))


def spots(problem: Problem, found: Found) -> tuple[Spot, ...]:
    """A layout by the nodes' names."""
    names = [node.name for node in problem.nodes()]
    edges = zip(found.order, found.cuts, found.cuts[1:], strict=False)
    return tuple(Spot(names[node], first, end) for node, first, end in edges)


def _rings(problem: Problem) -> list[_Ring]:
    """Every size of ring, those with equally many rows in a round together."""
    wanted, goal = problem.wanted, problem.goal
    most = min(len(problem.nodes()), len(problem.model.layers))
    part = goal.prompt * (len(wanted.parts) - 1)
    if not goal.throughput:
        return [_Ring(1, most, part, 0.0)]
    groups = [(rows, [*sizes]) for rows, sizes in groupby(range(1, most + 1), wanted.rows_a_group)]
    return [_Ring(sizes[0], sizes[-1], part, goal.throughput / rows) for rows, sizes in groups]


class _Search:
    """The boxes of all sizes of ring, by what they cost at least."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._best: Found | None = None
        self._cost = inf
        self._heap: list[tuple[float, int, _Ring, _Box]] = []
        self._order = count()
        self._arrays: dict[_Ring, Arrays] = {}
        for ring in _rings(problem):
            self._push(ring, _Box(0.0))

    def cheapest(self) -> Found | None:
        """The layout with the least cost; None where there is none."""
        while self._heap:
            _, _, ring, box = heappop(self._heap)
            self._open(ring, box)
        best, goal = self._best, self._problem.goal
        return best if best is None or goal.decode or goal.prompt else _quickest(self._problem, best)

    def _worth(self, ring: _Ring) -> float:
        """What a layout has to cost less than: fewer stages win where costs are equal."""
        fewer = self._best is not None and ring.most < len(self._best.order)
        return self._cost * SAME if fewer else self._cost / SAME

    def _push(self, ring: _Ring, box: _Box) -> None:
        bound = box.bound(ring)
        if bound < self._worth(ring) or self._best is None:
            heappush(self._heap, (bound, next(self._order), ring, box))

    def _open(self, ring: _Ring, box: _Box) -> None:
        """Find the least sum in the box, and split what is left of it."""
        worth = self._worth(ring)
        if self._best is not None and not box.bound(ring) < worth:
            return
        box = box.within(ring, worth)
        arrays = self._arrays.get(ring) or self._arrays.setdefault(ring, Arrays(build(self._problem, ring.most)))
        below = worth - (box.bound(ring) - box.floor)
        found = Pass(arrays, box.parts[1], box.rounds[1], ring.few, ring.most, below).cheapest()
        if found is None:
            return
        self._take(ring, found)
        if ring.cost(found) < self._cost * CLOSE:
            self._take(ring, _moved(arrays.tables, ring, found))
        worth = self._worth(ring)
        for left in box.without(ring, found):
            if left.bound(ring) < worth:
                left = left.within(ring, worth)
                far = max(left.sizes(ring)) > max(box.sizes(ring)) / 2
                for part in left.halves(ring) if far else [left]:
                    self._push(ring, part)

    def _take(self, ring: _Ring, found: Found) -> None:
        if (cost := ring.cost(found)) < self._worth(ring) or self._best is None:
            self._cost, self._best = min(cost, self._cost), found


def _moved(tables: Tables, ring: _Ring, found: Found) -> Found:
    """The layout after moving one cut by one layer, for as long as that makes it cheaper."""
    better = True
    while better:
        better = False
        for rank in range(1, len(found.order)):
            for by in (-1, 1):
                cuts = (*found.cuts[:rank], found.cuts[rank] + by, *found.cuts[rank + 1 :])
                if not _allowed(tables, found.order, cuts):
                    continue
                moved = priced(tables, found.order, cuts)
                if ring.cost(moved) * SAME < ring.cost(found):
                    found, better = moved, True
    return found


def _allowed(tables: Tables, order: tuple[int, ...], cuts: tuple[int, ...]) -> bool:
    """Whether every stage keeps memory and pins."""
    return all(
        node.room[end] <= first < end and node.cuts[first]
        for node, first, end in zip(tables.held(order), cuts, cuts[1:], strict=False)
    )


def _quickest(problem: Problem, found: Found) -> Found:
    """Where only the slowest round counts: the least decode time of all layouts with the same slowest round."""
    size = len(found.order)
    arrays = Arrays(build(replace(problem, goal=Goal(decode=1.0)), size))
    return Pass(arrays, inf, nextafter(found.round, inf), size, size).cheapest() or found
