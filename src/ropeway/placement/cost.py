"""What a layout costs: memory and milliseconds of every stage and hop, and the goal's sum. Pure.

decode      the sum of all stages and hops for one row
prompt      the sum for a mean part, and (parts - 1) times the slowest stage or link
throughput  the slowest stage or link with as many rounds under way as there are stages, by the streams in a round
(design of the layer-range RFC, section 3: the sum, and the slowest for what overlaps)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from ropeway.placement.facts import KV_SHARE, Fleet, Link, Model, Node
from ropeway.placement.wanted import TOKEN_BYTES, Goal, Wanted
from ropeway.types import SamplerAt

STAGING: Final = 4
"""Buffers for a part's rows at a stage: two on each side (docs/architecture.md, "Parts")."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A node and the layers first..end that it holds."""

    node: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class StagePrice:
    """One stage: milliseconds of a decode row, of a mean part, of a round of many streams; and its memory."""

    spot: Spot
    decode_ms: float
    part_ms: float
    round_ms: float
    memory_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class HopPrice:
    """One hop: milliseconds of a row, of a mean part with the delay, of the part alone, and of a round's rows."""

    sender: str
    receiver: str
    decode_ms: float
    part_ms: float
    busy_ms: float
    round_ms: float


@dataclass(frozen=True, slots=True)
class Price:
    """A layout and what is predicted for it. `cost` is the goal's weighted sum."""

    stages: tuple[StagePrice, ...]
    hops: tuple[HopPrice, ...]
    decode_ms: float
    prompt_ms: float
    """By the formula that the search goes by."""
    first_token_ms: float
    """Part by part, with the last part's real size and every part's real depth."""
    token_ms: float
    """Milliseconds a token of all streams together, where streams fill the ring."""
    cost: float
    streams: int = 1
    drafter_ms: float = 0.0
    """Of a guess on rank 0, which makes it while it would wait: in no goal."""

    @property
    def layout(self) -> tuple[Spot, ...]:
        """Who holds what, in the ring's order."""
        return tuple(stage.spot for stage in self.stages)

    @property
    def fits(self) -> bool:
        """No node passes its limit."""
        return all(stage.memory_bytes <= stage.limit_bytes for stage in self.stages)

    @property
    def wait_ms(self) -> float:
        """How long rank 0 waits for a token."""
        return self.decode_ms - self.stages[0].decode_ms

    @property
    def guesses(self) -> int:
        """Guesses of rank 0's drafter that fit into its wait; 0 where none was measured."""
        return int(self.wait_ms / self.drafter_ms) if self.drafter_ms else 0

    @property
    def tokens_per_s(self) -> float:
        """Of all streams together; no more than so many streams can each have alone."""
        return 1e3 / max(self.token_ms, self.decode_ms / self.streams, 1e-9)


def stage_bytes(model: Model, node: Node, wanted: Wanted, spot: Spot, *, embeds: bool, head: bool) -> int:
    """Bytes that a stage takes: weights, KV and states, what its engine takes, the ends that it has."""
    share = KV_SHARE[wanted.kv]
    held = model.layers[spot.first : spot.end]
    total = sum(layer.weights_bytes for layer in held) + node.overhead_bytes + STAGING * wanted.part * model.row_bytes
    total += sum(layer_state_bytes(layer.kv_row_bytes, layer.state_bytes, share, wanted) for layer in held)
    if spot.end < len(model.layers):
        total += spare_bytes(model, node, wanted)
    if embeds:
        total += model.embed_bytes + wanted.drafter_bytes
    if head:
        total += model.head_bytes
    return total


def layer_state_bytes(kv_row_bytes: int, state_bytes: int, share: float, wanted: Wanted) -> int:
    """KV and recurrent state of one layer, for all streams."""
    return wanted.streams * (round(kv_row_bytes * share) * wanted.context + state_bytes)


def spare_bytes(model: Model, node: Node, wanted: Wanted) -> int:
    """KV of the layers that an engine keeps behind a stage's own, where another stage follows."""
    widest = max(layer.kv_row_bytes for layer in model.layers)
    return node.spare_layers * layer_state_bytes(widest, 0, KV_SHARE[wanted.kv], wanted)


def price(model: Model, fleet: Fleet, wanted: Wanted, goal: Goal, layout: Sequence[Spot]) -> Price:
    """Price a layout, whether it fits or not. Raises ValueError where it does not cover the model once, in order."""
    check_layout(model, layout)
    world = len(layout)
    head_rank = 0 if wanted.sampler is SamplerAt.FIRST else world - 1
    nodes = [fleet.node(spot.node).scaled() for spot in layout]
    stages = tuple(
        stage_price(model, node, wanted, spot, world, rank == 0, rank == head_rank)
        for rank, (node, spot) in enumerate(zip(nodes, layout, strict=True))
    )
    hops = _hops(model, fleet, wanted, layout)
    head_once = nodes[head_rank].head.ms(1)
    slowest = max([stage.part_ms for stage in stages] + [hop.busy_ms for hop in hops])
    decode = sum(stage.decode_ms for stage in stages) + sum(hop.decode_ms for hop in hops)
    through = sum(stage.part_ms for stage in stages) + sum(hop.part_ms for hop in hops) + head_once
    prompt = through + (len(wanted.parts) - 1) * slowest
    busiest = max([stage.round_ms for stage in stages] + [hop.round_ms for hop in hops])
    token = busiest / wanted.rows_a_group(world)
    return Price(
        stages,
        hops,
        decode,
        prompt,
        _first_token_ms(model, fleet, wanted, nodes, layout) + head_once,
        token,
        goal.decode * decode + goal.prompt * prompt + goal.throughput * token,
        wanted.streams,
        nodes[0].drafter_ms if wanted.drafter_bytes else 0.0,
    )


def check_layout(model: Model, layout: Sequence[Spot]) -> None:
    """Raise ValueError unless `layout` covers 0..layers contiguously with each node at most once."""
    at = 0
    for spot in layout:
        if spot.first != at or spot.end <= at:
            raise ValueError(f"layout: {spot.node} has layers {spot.first}..{spot.end}, expected them to start at {at}")
        at = spot.end
    if at != len(model.layers):
        raise ValueError(f"layout: it ends at layer {at}, the model has {len(model.layers)}")
    if len({spot.node for spot in layout}) < len(layout):
        raise ValueError("layout: a node occurs twice")


def mean_depth(first: int, rows: int) -> float:
    """Positions that a row of a part attends to, on average."""
    return first + (rows + 1) / 2


def stage_price(
    model: Model, node: Node, wanted: Wanted, spot: Spot, world: int, embeds: bool, has_head: bool
) -> StagePrice:
    """One stage of a ring of `world`; `node` with `slower` taken in already."""
    depth, group = wanted.positions, wanted.rows_a_group(world)
    held = [node.stage, *(node.costs_of(layer.kind) for layer in model.layers[spot.first : spot.end])]
    decode = sum(costs.decode.ms(wanted.rows, depth) for costs in held)
    batch = sum(costs.decode.ms(group, depth) for costs in held)
    part = fmean(sum(c.prompt.ms(rows, mean_depth(first, rows)) for c in held) for first, rows in wanted.parts)
    if embeds:
        decode, batch = decode + node.embed.ms(wanted.rows), batch + node.embed.ms(group)
        part += fmean(node.embed.ms(rows) for _, rows in wanted.parts)
    if has_head:
        decode, batch = decode + node.head.ms(wanted.rows), batch + node.head.ms(group)
    if world > 1:
        decode *= node.rested
    memory = stage_bytes(model, node, wanted, spot, embeds=embeds, head=has_head)
    return StagePrice(spot, decode, part, batch, memory, node.limit_bytes)


def _hops(model: Model, fleet: Fleet, wanted: Wanted, layout: Sequence[Spot]) -> tuple[HopPrice, ...]:
    world = len(layout)
    if world == 1:
        return ()
    found = []
    for rank, spot in enumerate(layout):
        after = layout[(rank + 1) % world]
        link = fleet.between(spot.node, after.node)
        found.append(hop_price(model, wanted, spot.node, after.node, link, world, back=rank == world - 1))
    return tuple(found)


def hop_price(model: Model, wanted: Wanted, sender: str, receiver: str, link: Link, world: int, back: bool) -> HopPrice:
    """A hop between two stages, or the way `back` to rank 0, which only the wanted rows or tokens take."""
    group = wanted.rows_a_group(world)
    row = back_bytes(model, wanted) if back else model.row_bytes
    part = 0.0 if back else link.carry_ms(model.row_bytes * wanted.prompt / len(wanted.parts))
    return HopPrice(
        sender,
        receiver,
        link.latency_ms + link.carry_ms(row * wanted.rows),
        link.latency_ms + (link.carry_ms(row) if back else part),
        part,
        link.carry_ms(row * group),
    )


def back_bytes(model: Model, wanted: Wanted) -> int:
    """What goes back to rank 0 for one stream."""
    return model.row_bytes if wanted.sampler is SamplerAt.FIRST else TOKEN_BYTES


def _first_token_ms(model: Model, fleet: Fleet, wanted: Wanted, nodes: Sequence[Node], layout: Sequence[Spot]) -> float:
    """When the prompt's last row is back, every part taking its turn at each stage and link."""
    held = [
        [node.stage, *(node.costs_of(layer.kind) for layer in model.layers[spot.first : spot.end])]
        for node, spot in zip(nodes, layout, strict=True)
    ]
    links = [fleet.between(a.node, b.node) for a, b in itertools.pairwise(layout)]
    stage_free, link_free = [0.0] * len(layout), [0.0] * len(links)
    at = 0.0
    for first, rows in wanted.parts:
        at = 0.0
        for rank, costs in enumerate(held):
            own = sum(c.prompt.ms(rows, mean_depth(first, rows)) for c in costs)
            if rank == 0:
                own += nodes[0].embed.ms(rows)
            at = stage_free[rank] = max(at, stage_free[rank]) + own
            if rank < len(links):
                link = links[rank]
                link_free[rank] = max(at, link_free[rank]) + link.carry_ms(rows * model.row_bytes)
                at = link_free[rank] + link.latency_ms
    if len(layout) > 1:
        home = fleet.between(layout[-1].node, layout[0].node)
        at += home.latency_ms + home.carry_ms(back_bytes(model, wanted))
    return at
