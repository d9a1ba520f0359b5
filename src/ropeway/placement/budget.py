"""Memory: whether a model fits at all, and if not, what is missing, on which node, and what would fit. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from ropeway.placement.arrays import Arrays
from ropeway.placement.cost import Spot, stage_bytes
from ropeway.placement.facts import KV_SHARE, Fleet
from ropeway.placement.passes import Pass
from ropeway.placement.tables import Problem, Tables, build
from ropeway.placement.wanted import Goal

ALTERNATIVES: Final = ("q8_0", "q4_0")
"""Smaller types of keys and values that are tried where f16 does not fit."""


@dataclass(frozen=True, slots=True)
class Fits:
    """A change that makes it fit: the largest such context or number of streams, or a smaller type of KV."""

    what: str
    value: str

    def __str__(self) -> str:
        return f"{self.what} {self.value}"


class Infeasible(Exception):
    """No layout keeps every limit. `missing_bytes` more on `node`, by itself, would let it fit.

    `node` is empty where no single node can make up for it; then `missing_bytes` is what all together lack.
    """

    def __init__(self, node: str, missing_bytes: int, limit_bytes: int, fits: tuple[Fits, ...], why: str = "") -> None:
        self.node = node
        self.missing_bytes = missing_bytes
        self.limit_bytes = limit_bytes
        self.fits = fits
        text = why or (
            f"the model does not fit: {node} may use {_size(limit_bytes)} and would need "
            f"{_size(limit_bytes + missing_bytes)}, {_size(missing_bytes)} more"
            if node
            else f"the model does not fit: {_size(missing_bytes)} are missing on all nodes together"
        )
        hint = "; it would fit with " + ", or ".join(map(str, fits)) if fits else "; no smaller context would do"
        super().__init__(text + hint)


def infeasible(problem: Problem) -> Infeasible:
    """Why there is no layout. Does not ask whether there is one."""
    loose = replace(problem, goal=Goal(decode=1.0))
    roomy = replace(loose, fleet=_with_limits(loose.fleet, lambda _: 1 << 62))
    if not _fits(roomy):
        raise ValueError("pins: no layout keeps them all, whatever the memory")
    node, missing = _cheapest_relief(loose)
    limit = loose.fleet.node(node).limit_bytes if node else 0
    return Infeasible(node, missing, limit, what_fits(loose))


def what_fits(problem: Problem) -> tuple[Fits, ...]:
    """Changes of one thing that make it fit: the context, the streams, the type of KV."""
    wanted, found = problem.wanted, []

    def try_(**change: object) -> bool:
        return _fits(replace(problem, wanted=replace(wanted, **change)))  # type: ignore[arg-type]

    if (context := _largest(wanted.context, lambda value: try_(context=value))) and context < wanted.context:
        found.append(Fits("a context of", str(context)))
    if (streams := _largest(wanted.streams, lambda value: try_(streams=value))) and streams < wanted.streams:
        found.append(Fits("streams:", str(streams)))
    for kind in ALTERNATIVES:
        if KV_SHARE[kind] < KV_SHARE[wanted.kv] and try_(kv=kind):
            found.append(Fits("keys and values of type", kind))
            break
    return tuple(found)


def over_limit(problem: Problem, layout: tuple[Spot, ...]) -> list[tuple[str, int]]:
    """(node, bytes over its limit) of the stages that pass it: to check a layout again when its ranks load."""
    head = 0 if problem.wanted.sampler.value == "first" else len(layout) - 1
    found = []
    for rank, spot in enumerate(layout):
        node = problem.fleet.node(spot.node)
        needed = stage_bytes(problem.model, node, problem.wanted, spot, embeds=rank == 0, head=rank == head)
        if needed > node.limit_bytes:
            found.append((spot.node, needed - node.limit_bytes))
    return found


def _fits(problem: Problem) -> bool:
    """Whether there is a layout, times left aside. Quick where any node may follow any other at any layer."""
    tables = build(problem)
    free = not problem.pins.ranges and all(node.cut_every == 1 for node in problem.nodes())
    return _possible(tables) and (free or Pass(Arrays(tables)).cheapest() is not None)


def _possible(tables: Tables) -> bool:
    """Whether memory allows any layout, order and joints left aside. Never wrong where it says no."""
    everyone = range(len(tables.names))
    nearest = [list(accumulate(reversed(node.room), min))[::-1] for node in tables.later]
    begin = [tables.layers] * (1 << len(everyone))
    """By set of nodes: the first layer from which on they can hold the rest, at the very best."""
    for used in range(1, len(begin)):
        begin[used] = min(nearest[node][begin[used & ~(1 << node)]] for node in everyone if used >> node & 1)
    return any(
        low == 0
        for first in tables.starts
        for low in tables.first[first].room[max(1, begin[len(begin) - 1 & ~(1 << first)]) :]
    )


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest value from 1 to `most` that fits; 0 where none does."""
    if not fits(1):
        return 0
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _cheapest_relief(problem: Problem) -> tuple[str, int]:
    """The node that needs the fewest bytes more for the model to fit, and how many."""
    best, least = "", 1 << 62
    for node in problem.nodes():

        def more(extra: int, name: str = node.name) -> bool:
            fleet = _with_limits(problem.fleet, lambda n: extra if n == name else 0, add=True)
            return _fits(replace(problem, fleet=fleet))

        if not more(least - 1):
            continue
        low, high = 0, least - 1
        while high - low > max(1, high >> 12):
            middle = (low + high) // 2
            low, high = (low, middle) if more(middle) else (middle, high)
        best, least = node.name, high
    if best:
        return best, least
    together = sum(node.limit_bytes for node in problem.nodes())
    return "", max(0, _whole_bytes(problem) - together)


def _whole_bytes(problem: Problem) -> int:
    """What the model takes on all nodes together, at the least."""
    layers, node = len(problem.model.layers), problem.nodes()[0]
    return stage_bytes(problem.model, node, problem.wanted, Spot(node.name, 0, layers), embeds=True, head=True)


def _with_limits(fleet: Fleet, limit: Callable[[str], int], *, add: bool = False) -> Fleet:
    nodes = tuple(replace(n, limit_bytes=limit(n.name) + (n.limit_bytes if add else 0)) for n in fleet.nodes)
    return replace(fleet, nodes=nodes)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
