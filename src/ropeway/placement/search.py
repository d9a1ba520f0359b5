"""The search: which nodes, in which order, with which layers, for the least of the goal's sum. Exact, and pure.

A goal with a slowest stage in it is a sum plus a weight times a maximum. The least sum under a limit on the maximum
(passes.py) only grows as the limit falls, so an interval of limits can be left out as soon as the sum at its upper end
plus the weight times its lower end is no better than what has been found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, nextafter
from typing import Final

from ropeway.placement.budget import infeasible
from ropeway.placement.cost import Price, Spot, price
from ropeway.placement.passes import Found, Pass
from ropeway.placement.tables import Problem, Tables, build
from ropeway.placement.wanted import Goal

TRIES: Final = 24
"""Halvings in the search for the least limit that any layout can keep."""
SAME: Final = 1 + 1e-12
"""Costs this close are equal: fewer nodes win."""
NEAR: Final = 1.08
"""The first limit that is tried, by the least one: most often the best layout is close to it."""


@dataclass(frozen=True, slots=True)
class _Best:
    """The best so far, with its cost."""

    cost: float = inf
    found: Found | None = None


def search(problem: Problem) -> Price:
    """The layout with the least cost. Raises Infeasible, with numbers, and ValueError for pins that contradict."""
    found = search_if_any(problem)
    if found is None:
        raise infeasible(problem)
    return found


def search_if_any(problem: Problem) -> Price | None:
    """The same; None where no layout keeps memory and pins. Raises ValueError for pins that name no node or range."""
    best = _by_part(build(problem), problem, 0, inf, inf) if not problem.goal.throughput else _by_size(problem)
    if best.found is None:
        return None
    return price(problem.model, problem.fleet, problem.wanted, problem.goal, spots(problem, best.found))


def _by_size(problem: Problem) -> _Best:
    """Rings of every size in turn, since the rows of a round depend on it: large ones first, which are mostly best."""
    # What the goal costs at least without its throughput, whatever the size.
    without = _by_part(build(problem), problem, 0, inf, inf)
    if without.found is None:
        return without
    best, floor = _Best(), without.cost * (1 - 1e-9)
    for world in range(min(len(problem.nodes()), len(problem.model.layers)), 0, -1):
        tables = build(problem, world)
        tried = _by_round(tables, problem, world, best.cost * SAME, floor)
        if tried.found is not None and tried.cost <= best.cost * SAME:
            best = _Best(tried.cost, _quickest(tables, problem, world, tried.found))
    return best


def _quickest(tables: Tables, problem: Problem, world: int, found: Found) -> Found:
    """Where only the slowest round counts: the least decode time of all layouts with the same slowest round."""
    if problem.goal.decode or problem.goal.prompt:
        return found
    tables = build(replace(problem, goal=Goal(decode=1.0)), world)
    return Pass(tables, inf, nextafter(found.round, inf), world).cheapest() or found


def spots(problem: Problem, found: Found) -> tuple[Spot, ...]:
    """A layout by the nodes' names."""
    names = [node.name for node in problem.nodes()]
    edges = zip(found.order, found.cuts, found.cuts[1:], strict=False)
    return tuple(Spot(names[node], first, end) for node, first, end in edges)


def _by_part(tables: Tables, problem: Problem, world: int, round_limit: float, below: float) -> _Best:
    """The least sum plus (parts - 1) times the slowest part, rounds staying under `round_limit`."""
    weight = problem.goal.prompt * (len(problem.wanted.parts) - 1)

    def solve(limit: float, least: float) -> Found | None:
        return Pass(tables, limit, round_limit, world, least).cheapest()

    if not weight:
        found = solve(inf, below)
        return _Best() if found is None else _Best(found.total, found)

    def possible(limit: float) -> bool:
        return Pass(tables, limit, round_limit, world).possible()

    return _descend(solve, lambda found: found.part, weight, _least(possible), below, _floor(tables))


def _by_round(tables: Tables, problem: Problem, world: int, below: float, floor: float) -> _Best:
    """The same with the slowest round, by the streams in it, for rings of exactly `world` stages.

    Without its throughput, no layout's cost is under `floor`.
    """
    weight = problem.goal.throughput / problem.wanted.rows_a_group(world)

    def solve(limit: float, least: float) -> Found | None:
        return _by_part(tables, problem, world, limit, least).found

    def possible(limit: float) -> bool:
        return Pass(tables, inf, limit, world).possible()

    if not possible((below - floor) / weight):
        return _Best()
    parts = problem.goal.prompt * (len(problem.wanted.parts) - 1)
    return _descend(solve, lambda found: found.round, weight, _least(possible), below, floor, lambda f: parts * f.part)


def _descend(
    solve: Callable[[float, float], Found | None],
    slowest: Callable[[Found], float],
    weight: float,
    least: float,
    below: float,
    floor: float,
    more: Callable[[Found], float] = lambda _: 0.0,
) -> _Best:
    """The least of sum + weight * slowest, below `below`. `solve(limit, below)` gives the least sum under a limit,
    which is never under `floor`."""
    best = _Best(below)
    intervals = [(least * NEAR, inf, floor), (least, least * NEAR, floor)]
    while intervals:
        low, high, floor = intervals.pop()
        high = min(high, (best.cost - floor) / weight)
        if high <= low:
            continue
        found = solve(high, best.cost - weight * low)
        if found is None:
            continue
        floor = found.total + more(found)
        if (cost := floor + weight * slowest(found)) < best.cost:
            best = _Best(cost, found)
        high = min(slowest(found), (best.cost - floor) / weight)
        middle = (low + high) / 2
        if low < middle < high:
            intervals += [(middle, high, floor), (low, middle, floor)]
        elif low < high:
            intervals.append((low, high, floor))
    return best


def _floor(tables: Tables) -> float:
    """What no layout's sum is under: every layer where it costs least, ends and hops left aside."""
    prefixes = [node.total.prefix for node in tables.later]
    return sum(min(prefix[at + 1] - prefix[at] for prefix in prefixes) for at in range(tables.layers)) * (1 - 1e-12)


def _least(possible: Callable[[float], bool]) -> float:
    """A limit that no layout can stay under, nearly as high as there is one; 0 where nothing is possible at all."""
    if not possible(inf):
        return 0.0
    high = 1.0
    while not possible(high):
        high *= 4
    low = 0.0
    for _ in range(TRIES):
        middle = (low + high) / 2
        if possible(middle):
            high = middle
        else:
            low = middle
    return low
