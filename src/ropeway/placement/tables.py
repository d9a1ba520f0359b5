"""A placement problem as prefix sums, so that any stage's cost and memory is a difference of two numbers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import inf, nextafter
from statistics import fmean

from ropeway.placement.cost import STAGING, hop_price, layer_state_bytes, mean_depth, spare_bytes
from ropeway.placement.facts import KV_SHARE, Costs, Fleet, Model, Node
from ropeway.placement.wanted import Goal, Pins, Wanted
from ropeway.types import SamplerAt


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that a choice depends on."""

    model: Model
    fleet: Fleet
    wanted: Wanted = field(default_factory=Wanted)
    goal: Goal = field(default_factory=lambda: Goal(decode=1.0))
    pins: Pins = field(default_factory=Pins)

    def nodes(self) -> tuple[Node, ...]:
        """The nodes that may be used. Raises ValueError where a pin names none, or leaves none."""
        pins, fleet, layers = self.pins, self.fleet, len(self.model.layers)
        for name in (*pins.ranges, *pins.leave_out, *pins.order, *([pins.first] if pins.first else [])):
            fleet.node(name)
        if both := sorted(pins.leave_out & {*pins.ranges, *pins.order, pins.first}):
            raise ValueError(f"pins: {both[0]} is both pinned and left out")
        if len(set(pins.order)) < len(pins.order):
            raise ValueError(f"pins: the order {', '.join(pins.order)} names a node twice")
        for name, (first, end) in pins.ranges.items():
            if not 0 <= first < end <= layers:
                raise ValueError(f"pins: {name} cannot have layers {first}..{end} of the model's {layers}")
            if not all(_may_cut(fleet.node(name), at, layers) for at in (first, end)):
                raise ValueError(f"pins: {name} can be cut only at multiples of {fleet.node(name).cut_every}")
        usable = [node for node in fleet.nodes if node.name not in pins.leave_out]
        found = tuple(node.scaled() for node in usable if not pins.order or node.name in pins.order)
        if not found:
            raise ValueError("nodes: none is left to place the model on")
        return found

    def with_fleet(self, fleet: Fleet) -> Problem:
        """The same question for other nodes."""
        return replace(self, fleet=fleet)


@dataclass(frozen=True, slots=True)
class Sums:
    """One figure of stages: layers i..j of a node take prefix[j] - prefix[i] + plus, and `last` where j is the end."""

    prefix: list[float]
    plus: float
    last: float

    def of(self, first: int, end: int) -> float:
        """The figure of layers first..end."""
        more = self.last if end == len(self.prefix) - 1 else 0.0
        return self.prefix[end] - self.prefix[first] + self.plus + more

    def lowest_first(self, limit: float) -> list[int]:
        """For each end, the smallest `first` with `of(first, end)` < limit; the end itself where there is none."""
        found, first, last = [0], 0, len(self.prefix) - 1
        begin = self.prefix[0]
        for end, height in enumerate(self.prefix[1:last], 1):
            while first < end and height - begin + self.plus >= limit:
                first += 1
                begin = self.prefix[first]
            found.append(first)
        first = 0
        while first < last and self.of(first, last) >= limit:
            first += 1
        return [*found, first]


@dataclass(frozen=True, slots=True)
class NodeTables:
    """One node in one role (rank 0 or a later one): the goal's sum, a mean part, a round, and memory."""

    total: Sums
    part: Sums
    round: Sums
    room: list[int]
    """For each end, the smallest first layer that memory, cuts and pins allow; the end itself where there is none."""
    cuts: tuple[bool, ...]
    """At which layers a stage may begin or end."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop in the goal's terms."""

    total: float
    part: float
    round: float


@dataclass(frozen=True, slots=True)
class Tables:
    """The whole problem for rings of `world` stages (0: of any size, where no round's rows matter)."""

    names: tuple[str, ...]
    layers: int
    alone: tuple[Sums, ...]
    """By node: the goal's sum where it has the whole model."""
    first: tuple[NodeTables, ...]
    later: tuple[NodeTables, ...]
    ahead: tuple[tuple[Hop, ...], ...]
    back: tuple[tuple[Hop, ...], ...]
    once: tuple[float, ...]
    """By node: what having the head costs once a prompt, in the goal's terms."""
    head_last: bool
    must: int
    """Bits of the nodes that have to be used."""
    starts: tuple[int, ...]
    """The nodes that may be rank 0."""

    def held(self, order: Sequence[int]) -> list[NodeTables]:
        """The stages' nodes in a ring of several: rank 0's with the ends that it has."""
        return [self.first[order[0]], *(self.later[node] for node in order[1:])]


@dataclass(frozen=True, slots=True)
class Found:
    """A layout by node numbers: stage k has layers cuts[k]..cuts[k + 1]. `part` and `round` are its slowest."""

    total: float
    part: float
    round: float
    order: tuple[int, ...]
    cuts: tuple[int, ...]


def build(problem: Problem, world: int = 0) -> Tables:
    """Tables for rings of `world` stages. Raises ValueError as `Problem.nodes`, and for kinds nobody measured."""
    nodes, pins = problem.nodes(), problem.pins
    names = tuple(node.name for node in nodes)
    wanted_first = {name for name in (pins.first, *pins.order[:1]) if name}
    at_start = [n for n, name in enumerate(names) if wanted_first <= {name}]
    at_start = [n for n in at_start if pins.ranges.get(names[n], (0, 0))[0] == 0]
    goal, at = problem.goal, max(world, 1)

    def hop(a: Node, b: Node, back: bool) -> Hop:
        found = hop_price(
            problem.model, problem.wanted, a.name, b.name, problem.fleet.between(a.name, b.name), at, back
        )
        # A hop that the order does not have keeps no limit, not even an infinite one.
        busy = found.busy_ms if back or not pins.order or (a.name, b.name) in pairwise(pins.order) else inf
        return Hop(goal.decode * found.decode_ms + goal.prompt * found.part_ms, busy, found.round_ms)

    return Tables(
        names=names,
        layers=len(problem.model.layers),
        alone=tuple(_node_tables(problem, replace(node, rested=1.0), at, True).total for node in nodes),
        first=tuple(_node_tables(problem, node, at, True) for node in nodes),
        later=tuple(_node_tables(problem, node, at, False) for node in nodes),
        ahead=tuple(tuple(hop(a, b, False) for b in nodes) for a in nodes),
        back=tuple(tuple(hop(a, b, True) for b in nodes) for a in nodes),
        once=tuple(goal.prompt * node.head.ms(1) for node in nodes),
        head_last=problem.wanted.sampler is SamplerAt.LAST,
        must=sum(1 << n for n, name in enumerate(names) if name in pins.ranges or name in pins.order),
        starts=tuple(at_start),
    )


def priced(tables: Tables, order: tuple[int, ...], cuts: tuple[int, ...]) -> Found:
    """A layout by the tables, whether it keeps memory and pins or not."""
    ranges = list(pairwise(cuts))
    node = order[0]
    once = tables.once[order[-1] if tables.head_last else node]
    if len(order) == 1:
        stage, whole = tables.first[node], ranges[0]
        return Found(tables.alone[node].of(*whole) + once, stage.part.of(*whole), stage.round.of(*whole), order, cuts)
    hops = [tables.ahead[a][b] for a, b in pairwise(order)] + [tables.back[order[-1]][node]]
    stages = list(zip(tables.held(order), ranges, strict=True))
    return Found(
        sum([stage.total.of(*range_) for stage, range_ in stages] + [hop.total for hop in hops]) + once,
        max([stage.part.of(*range_) for stage, range_ in stages] + [hop.part for hop in hops]),
        max([stage.round.of(*range_) for stage, range_ in stages] + [hop.round for hop in hops]),
        order,
        cuts,
    )


def _node_tables(problem: Problem, node: Node, world: int, embeds: bool) -> NodeTables:
    model, wanted, goal = problem.model, problem.wanted, problem.goal
    head_here = embeds and wanted.sampler is SamplerAt.FIRST
    head_last = wanted.sampler is SamplerAt.LAST
    group, depth = wanted.rows_a_group(world), wanted.positions
    parts = [(rows, mean_depth(first, rows)) for first, rows in wanted.parts]

    def sums(of: Callable[[Costs], float], embed: float, head: float) -> Sums:
        by_kind = {kind: of(node.costs_of(kind)) for kind in model.kinds}
        prefix = list(accumulate((by_kind[layer.kind] for layer in model.layers), initial=0.0))
        plus = of(node.stage) + (embed if embeds else 0.0) + (head if head_here else 0.0)
        return Sums(prefix, plus, head if head_last else 0.0)

    one = wanted.rows
    decode = sums(lambda c: c.decode.ms(one, depth), node.embed.ms(one), node.head.ms(one))
    part = sums(
        lambda c: fmean(c.prompt.ms(rows, at) for rows, at in parts), fmean(node.embed.ms(r) for r, _ in parts), 0.0
    )
    memory = _memory(problem, node, embeds, head_here, head_last)
    pinned, layers = problem.pins.ranges.get(node.name), len(model.layers)
    cuts = tuple(_may_cut(node, at, layers) and (pinned is None or at in pinned) for at in range(layers + 1))
    return NodeTables(
        total=_weighted(decode, goal.decode * node.rested, part, goal.prompt),
        part=part,
        round=sums(lambda c: c.decode.ms(group, depth), node.embed.ms(group), node.head.ms(group)),
        room=_room(memory.lowest_first(nextafter(float(node.limit_bytes), inf)), cuts),
        cuts=cuts,
    )


def _room(lowest: list[int], cuts: tuple[bool, ...]) -> list[int]:
    return [low if cut else end for end, (low, cut) in enumerate(zip(lowest, cuts, strict=True))]


def _may_cut(node: Node, at: int, layers: int) -> bool:
    return at % node.cut_every == 0 or at == layers


def _weighted(a: Sums, weight_a: float, b: Sums, weight_b: float) -> Sums:
    def both(x: float, y: float) -> float:
        return weight_a * x + weight_b * y

    prefix: Sequence[float] = [both(x, y) for x, y in zip(a.prefix, b.prefix, strict=True)]
    return Sums(list(prefix), both(a.plus, b.plus), both(a.last, b.last))


def _memory(problem: Problem, node: Node, embeds: bool, head_here: bool, head_last: bool) -> Sums:
    model, wanted = problem.model, problem.wanted
    share = KV_SHARE[wanted.kv]
    prefix = list(
        accumulate(
            (
                float(layer.weights_bytes + layer_state_bytes(layer.kv_row_bytes, layer.state_bytes, share, wanted))
                for layer in model.layers
            ),
            initial=0.0,
        )
    )
    spare = spare_bytes(model, node, wanted)
    plus = node.overhead_bytes + STAGING * wanted.part * model.row_bytes + spare
    if embeds:
        plus += model.embed_bytes + wanted.drafter_bytes
    if head_here:
        plus += model.head_bytes
    return Sums(prefix, float(plus), float(-spare + (model.head_bytes if head_last else 0)))
