"""Processor seconds of searches over 8 nodes and 128 layers: `python bench/placing.py --search`.

By goal, over random nodes and over kinds of nodes that are hard to choose from: all alike, nearly alike, unlike, with
memory that only whole rows of nodes fill, with links so slow that they decide, with many streams.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from results import Figure, Result
from ropeway.placement.cost import STAGING, Spot, stage_bytes
from ropeway.placement.facts import Cost, Costs, Fleet, Layer, Link, Model, Node
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted

LAYERS, NODES = 128, 8
LAYER_BYTES = 40_000_000
MIXES = (Goal(1, 0.1), Goal(200, 1), Goal(1, 0, 1), Goal(0, 1, 3), Goal(0.5, 0.1, 2), Goal(1, 0.01, 1))
GOALS = (Goal(1), Goal(0, 1), Goal(0, 0, 1), *MIXES)


def random_nodes(seed: int) -> Problem:
    """The tests' random nodes, links and kinds of layers, with memory that is short for one or two nodes."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from placement.cases import random_problem

    problem, draw = random_problem(seed, NODES, LAYERS), random.Random(seed)
    model, nodes = problem.model, problem.fleet.nodes
    wanted = Wanted(context=256, streams=8, prompt=4096, part=512)
    buffers = STAGING * wanted.part * model.row_bytes
    held = stage_bytes(model, nodes[0], wanted, Spot("n0", 0, LAYERS), embeds=True, head=True) - buffers
    roomy = tuple(replace(node, limit_bytes=buffers + round(held * draw.uniform(0.15, 0.8))) for node in nodes)
    return replace(problem, pins=Pins(), wanted=wanted, fleet=replace(problem.fleet, nodes=roomy))


def alike(seed: int, spread: float, kinds: int, link: Link, *, memory: float = 3.0, streams: int = 8) -> Problem:
    """Nodes and links whose times differ by up to `spread`, each node with room for a share `memory` of the layers."""
    draw = random.Random(seed)
    layers = tuple(
        Layer(f"k{at % kinds if at % 4 else 0}", LAYER_BYTES, 0 if at % 4 else 4096, 100_000 if at % 4 else 0)
        for at in range(LAYERS)
    )

    def near(value: float) -> float:
        return value * (1 + spread * draw.uniform(-1, 1))

    def node(name: str) -> Node:
        speed = near(1.0)

        def costs(scale: float) -> Costs:
            one, many = near(scale * speed), near(scale * speed)
            return Costs(Cost(0.3 * one, 0.05 * one, 1e-5 * one), Cost(0.5 * many, 0.01 * many, 1e-6 * many))

        by_kind = {f"k{kind}": costs(1 + 0.3 * kind) for kind in range(kinds)}
        limit = int(memory * LAYERS * LAYER_BYTES) + 1_300_000_000
        ends = Cost(0.05 * speed, 0.01 * speed, 0.0), Cost(speed, 0.02 * speed, 0.0)
        return Node(name, limit, by_kind, costs(0.3), *ends, hop_ms=0.1)

    nodes = tuple(node(f"n{at}") for at in range(NODES))
    links = {(a.name, b.name): Link(near(link.latency_ms), near(link.bytes_per_s)) for a in nodes for b in nodes}
    model = Model("alike", layers, 8192, 500_000_000, 500_000_000)
    return Problem(model, Fleet(nodes, links, link), Wanted(context=2048, streams=streams, prompt=4096, part=512))


def problems() -> Iterator[Problem]:
    """All that are timed, for each goal."""
    gbit = Link(0.3, 1.25e8)
    yield from (random_nodes(seed) for seed in range(6))
    for kinds in (1, 3):
        yield from (alike(kinds, spread, kinds, gbit) for spread in (0.0, 0.01, 0.2))
        yield alike(kinds, 0.05, kinds, gbit, memory=0.126)
        yield alike(kinds, 0.2, kinds, Link(5.0, 1e6))
        yield alike(kinds, 0.05, kinds, gbit, streams=64)


def time_searches() -> Result:
    """The seconds by goal; the limit holds for the worst."""
    asked, figures = list(problems()), []
    for goal in GOALS:
        times = []
        for problem in asked:
            started = time.process_time()
            search(replace(problem, goal=goal))
            times.append(time.process_time() - started)
        figures.append(Figure.of(f"a search for {goal}", "s", times, limit=1.0, more=False))
        figures.append(Figure.of(f"the worst for {goal}", "s", [max(times)], limit=1.0, more=False))
    kinds = "6 of random ones, 12 of nodes that are hard to choose from"
    return Result("placing", f"searches over 8 nodes and 128 layers: {kinds}", tuple(figures))
