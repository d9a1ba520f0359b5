"""Why this layout: the next best ones and what they cost, and what another node would change. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ropeway.placement.cost import Price, Spot, price
from ropeway.placement.search import search_if_any
from ropeway.placement.tables import Problem
from ropeway.types import even_cuts


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another layout, why it is worth a look, and its price."""

    what: str
    price: Price

    def why_not(self, chosen: Price) -> str:
        """What speaks against it."""
        over = [stage for stage in self.price.stages if stage.memory_bytes > stage.limit_bytes]
        if over:
            worst = max(over, key=lambda stage: stage.memory_bytes - stage.limit_bytes)
            missing = (worst.memory_bytes - worst.limit_bytes) / 1e6
            return f"does not fit: {worst.spot.node} misses {missing:,.1f} MB"
        more = self.price.cost / chosen.cost - 1 if chosen.cost else 0.0
        return f"{more:+.1%}" if abs(more) >= 5e-4 else "as good"


def alternatives(problem: Problem, chosen: Price) -> list[Alternative]:
    """Layouts beside the chosen one, the best first; those that do not fit come last."""
    layouts: dict[tuple[Spot, ...], str] = {chosen.layout: ""}
    for what, layout in [*_moved(problem, chosen), *_usual(problem), *_alone(problem)]:
        layouts.setdefault(layout, what)
    found = []
    for layout, what in layouts.items():
        if what and _keeps_pins(problem, layout):
            cost = price(problem.model, problem.fleet, problem.wanted, problem.goal, layout)
            found.append(Alternative(what, cost))
    for other in _without_each(problem, chosen):
        if other.price.layout not in layouts:
            layouts[other.price.layout] = other.what
            found.append(other)
    return sorted(found, key=lambda other: (not other.price.fits, other.price.cost))


def with_node(problem: Problem, spare: Sequence[str], name: str) -> Problem:
    """The problem with `name` added (where it is one of `spare`, which are left out so far) or dropped.

    Raises ValueError for an unknown name.
    """
    problem.fleet.node(name)
    out = problem.pins.leave_out
    out = out - {name} if name in spare and name in out else out | {name}
    return replace(problem, pins=replace(problem.pins, leave_out=out))


def _moved(problem: Problem, chosen: Price) -> list[tuple[str, tuple[Spot, ...]]]:
    """One layer more or less on each side of each cut."""
    found = []
    spots = list(chosen.layout)
    for rank in range(1, len(spots)):
        left, right = spots[rank - 1], spots[rank]
        for by in (-1, 1):
            cut = right.first + by * max(problem.fleet.node(name).cut_every for name in (left.node, right.node))
            if left.first < cut < right.end:
                moved = [*spots]
                moved[rank - 1], moved[rank] = replace(left, end=cut), replace(right, first=cut)
                to = left.node if by > 0 else right.node
                found.append((f"cut at {cut} instead of {right.first}: more on {to}", tuple(moved)))
    return found


def _usual(problem: Problem) -> list[tuple[str, tuple[Spot, ...]]]:
    """What other tools do: equal shares, and shares by memory."""
    nodes, layers = problem.nodes(), len(problem.model.layers)
    if not 1 < len(nodes) <= layers:
        return []
    names = [node.name for node in nodes]
    even = _spots(names, [0, *even_cuts(layers, len(nodes)), layers])
    total = sum(node.limit_bytes for node in nodes) or 1
    edges, held = [0], 0
    for rank, node in enumerate(nodes):
        held += node.limit_bytes
        edge = round(layers * held / total)
        edges.append(min(max(edge, edges[-1] + 1), layers - (len(nodes) - 1 - rank)))
    edges[-1] = layers
    return [("equal shares", even), ("shares by memory", _spots(names, edges))]


def _alone(problem: Problem) -> list[tuple[str, tuple[Spot, ...]]]:
    layers = len(problem.model.layers)
    return [(f"{node.name} alone", (Spot(node.name, 0, layers),)) for node in problem.nodes()]


def _without_each(problem: Problem, chosen: Price) -> list[Alternative]:
    """The best layout without each of the nodes that are used."""
    found = []
    for spot in chosen.layout:
        pins = problem.pins
        if len(chosen.layout) == 1 or spot.node in {pins.first, *pins.order, *pins.ranges}:
            continue
        less = replace(problem, pins=replace(pins, leave_out=pins.leave_out | {spot.node}))
        if (other := search_if_any(less)) is not None:
            found.append(Alternative(f"without {spot.node}", other))
    return found


def _spots(names: Sequence[str], edges: Sequence[int]) -> tuple[Spot, ...]:
    return tuple(Spot(name, a, b) for name, a, b in zip(names, edges, edges[1:], strict=False))


def _keeps_pins(problem: Problem, layout: tuple[Spot, ...]) -> bool:
    pins, held = problem.pins, {spot.node: (spot.first, spot.end) for spot in layout}
    nodes = {node.name: node for node in problem.nodes()}
    return (
        pins.first in ("", layout[0].node)
        and pins.order in ((), tuple(held))
        and all(held.get(name) == range_ for name, range_ in pins.ranges.items())
        and all(name in nodes for name in held)
        and all(spot.first % nodes[spot.node].cut_every == 0 for spot in layout)
        and all(a.end % nodes[a.node].cut_every == 0 for a in layout[:-1])
    )
