"""Random placement problems from a seed, and the answer by trying every order and every cut."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator

from ropeway.placement.cost import HopPrice, Spot, StagePrice, hop_price, stage_price
from ropeway.placement.facts import Cost, Costs, Fleet, Layer, Link, Model, Node
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted
from ropeway.types import SamplerAt

GOALS = (Goal(1), Goal(0, 1), Goal(0, 0, 1), Goal(1, 0.1), Goal(1, 0, 1), Goal(0, 1, 3), Goal(0.5, 0.1, 2))


def random_problem(seed: int, nodes: int, layers: int) -> Problem:
    """Layers of up to three kinds on unlike nodes with unlike links; memory is short in about half of the cases."""
    draw = random.Random(seed)
    kinds = [f"kind{i}" for i in range(draw.randint(1, 3))]
    model = Model(
        "random",
        tuple(
            Layer(draw.choice(kinds), draw.randint(1, 50) * 1000, draw.choice([0, 1, 4]), draw.choice([0, 100]))
            for _ in range(layers)
        ),
        draw.choice([100, 20_000]),
        draw.randint(0, 100_000),
        draw.randint(0, 100_000),
    )
    total = sum(layer.weights_bytes for layer in model.layers)
    found = tuple(_node(draw, f"n{n}", kinds, total) for n in range(nodes))
    links = {
        (a.name, b.name): Link(draw.random() * draw.choice([0.1, 1, 5]), draw.choice([1e5, 1e6, 1e8]))
        for a, b in itertools.permutations(found, 2)
        if draw.random() < 0.8
    }
    wanted = Wanted(
        context=draw.choice([16, 64, 256]),
        streams=draw.choice([1, 2, 7]),
        prompt=draw.choice([1, 7, 16]),
        part=draw.choice([4, 8]),
        kv=draw.choice(["f16", "q8_0"]),
        sampler=draw.choice(list(SamplerAt)),
        rows=draw.choice([1, 1, 3]),
    )
    fleet = Fleet(found, links, Link(draw.random(), 1e7))
    return Problem(model, fleet, wanted, draw.choice(GOALS), _pins(draw, found, layers))


def _node(draw: random.Random, name: str, kinds: list[str], total: int) -> Node:
    speed = draw.choice([1, 1, 2, 4, draw.random() * 5 + 0.2])

    def cost(scale: float) -> Cost:
        return Cost(
            draw.random() * scale * speed, draw.random() * scale * 0.1 * speed, draw.random() * scale * 1e-4 * speed
        )

    return Node(
        name,
        int(total * draw.choice([0.3, 0.5, 0.8, 3]) * draw.random() * 2.5 + 150_000 + draw.randint(0, 150_000)),
        {kind: Costs(cost(1), cost(1)) for kind in kinds},
        Costs(cost(0.3), cost(0.3)),
        cost(0.1),
        cost(0.5),
        overhead_bytes=draw.randint(0, 20_000),
        spare_layers=draw.choice([0, 0, 1]),
        cut_every=draw.choice([1, 1, 1, 2]),
        rested=draw.choice([1, 1, 1.3]),
        hop_ms=draw.choice([0, 0.2]),
        slower=draw.choice([1, 1, 2]),
    )


def _pins(draw: random.Random, nodes: tuple[Node, ...], layers: int) -> Pins:
    kind = draw.random()
    if kind < 0.15:
        return Pins(first=draw.choice(nodes).name)
    if kind < 0.3:
        every = nodes[0].cut_every
        first = draw.randrange(0, layers, every)
        end = draw.choice([*range(first + every, layers, every), layers])
        return Pins(ranges={nodes[0].name: (first, end)})
    if kind < 0.4 and len(nodes) > 1:
        return Pins(leave_out=frozenset([nodes[-1].name]))
    if kind < 0.5:
        return Pins(order=tuple(node.name for node in draw.sample(nodes, draw.randint(1, min(len(nodes), layers)))))
    return Pins()


def by_trying(problem: Problem) -> float | None:
    """The cost of the cheapest layout that fits, of all that there are; None where there is none.

    By itself: stages and hops are priced one by one and put together here.
    """
    pins, layers = problem.pins, len(problem.model.layers)
    usable = [node for node in problem.fleet.nodes if node.name not in pins.leave_out]
    costs = [
        cost
        for world in range(1, min(len(usable), layers) + 1)
        for cost in _of_size(problem, usable, world)
        if cost is not None
    ]
    return min(costs, default=None)


def _of_size(problem: Problem, usable: list[Node], world: int) -> Iterator[float | None]:
    model, wanted, pins, layers = problem.model, problem.wanted, problem.pins, len(problem.model.layers)
    first_has_head = wanted.sampler is SamplerAt.FIRST

    nodes = {node.name: node for node in usable}

    @functools.cache
    def stage(name: str, first: int, end: int) -> StagePrice | None:
        node = nodes[name]
        if not 0 <= first < end or (first and first % node.cut_every) or (end < layers and end % node.cut_every):
            return None
        if pins.ranges.get(node.name, (first, end)) != (first, end):
            return None
        head = first == 0 if first_has_head else end == layers
        found = stage_price(model, node.scaled(), wanted, Spot(node.name, first, end), world, first == 0, head)
        return found if found.memory_bytes <= found.limit_bytes else None

    @functools.cache
    def hop(a: str, b: str, back: bool) -> HopPrice:
        return hop_price(model, wanted, a, b, problem.fleet.between(a, b), world, back)

    for names in itertools.permutations(nodes, world):
        if pins.first not in ("", names[0]) or pins.order not in ((), names) or not set(pins.ranges) <= {*names}:
            continue
        hops = [hop(a, b, False) for a, b in itertools.pairwise(names)]
        if world > 1:
            hops.append(hop(names[-1], names[0], True))
        once = nodes[names[0] if first_has_head else names[-1]].scaled().head.ms(1)
        for cuts in itertools.combinations(range(1, layers), world - 1):
            stages = [stage(n, a, b) for n, a, b in zip(names, (0, *cuts), (*cuts, layers), strict=True)]
            yield None if None in stages else _sum(problem, world, [s for s in stages if s], hops, once)


def _sum(problem: Problem, world: int, stages: list[StagePrice], hops: list[HopPrice], once: float) -> float:
    goal, wanted = problem.goal, problem.wanted
    steps: list[StagePrice | HopPrice] = [*stages, *hops]
    decode = sum(step.decode_ms for step in steps)
    slowest = max([stage.part_ms for stage in stages] + [hop.busy_ms for hop in hops])
    prompt = sum(step.part_ms for step in steps) + once + (-(-wanted.prompt // wanted.part) - 1) * slowest
    token = max(step.round_ms for step in steps) / -(-wanted.streams // world)
    return goal.decode * decode + goal.prompt * prompt + goal.throughput * token
