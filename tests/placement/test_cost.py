"""Prices of layouts, with the arithmetic in comments: published figures, and what is charged to whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropeway.placement.cost import Price, Spot, price
from ropeway.placement.facts import Cost, Costs, Fleet, Layer, Link, Model, Node
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted
from ropeway.types import SamplerAt

LAYERS = 60
"""Of the stand-in for the 27B model; only shares of it matter."""


def uniform(name: str, decode_ms: float, part_ms: float = 0.0, *, part: int = 512, layers: int = LAYERS) -> Node:
    """A node that takes `decode_ms` a token and `part_ms` a part for the whole model."""
    return Node(name, 1 << 50, {"a": Costs(Cost(decode_ms / layers), Cost(0.0, part_ms / layers / part))}, backend=name)


def model(layers: int = LAYERS, row_bytes: int = 0) -> Model:
    return Model("m", (Layer("a", 1000),) * layers, row_bytes)


def two(mac_layers: int) -> Price:
    """Decode tokens a second of the Mac and the GB10 (facts.md, "Peers"), the Mac with the last layers."""
    # alone: 1000 / 27.05 = 36.97 ms a token on the Mac, 1000 / 12.25 = 81.63 ms on the GB10
    fleet = Fleet((uniform("mac", 1000 / 27.05), uniform("gb10", 1000 / 12.25)), link=Link(0.0, 1e12))
    layout = [Spot("gb10", 0, LAYERS - mac_layers), Spot("mac", LAYERS - mac_layers, LAYERS)]
    return price(model(), fleet, Wanted(), Goal(1), layout)


def test_half_and_half_of_two_unlike_machines() -> None:
    # 0.5 x 36.97 + 0.5 x 81.63 = 59.30 ms = 16.86 tokens a second; measured 16.71, 0.9 % less
    assert two(30).decode_ms == pytest.approx(59.30, abs=0.01)
    assert 1000 / two(30).decode_ms == pytest.approx(16.86, abs=0.005)
    assert 1000 / two(30).decode_ms == pytest.approx(16.71, rel=0.01)


def test_fifteen_to_eighty_five_of_two_unlike_machines() -> None:
    # 0.85 x 36.97 + 0.15 x 81.63 = 43.67 ms = 22.90 tokens a second; measured 21.79, 5 % less: the hops
    assert two(51).decode_ms == pytest.approx(43.67, abs=0.01)
    assert 1000 / two(51).decode_ms == pytest.approx(22.90, abs=0.005)
    assert 1000 / two(51).decode_ms == pytest.approx(21.79, rel=0.055)


def test_one_of_two_machines_alone_is_said_to_decode_faster() -> None:
    fleet = Fleet((uniform("mac", 1000 / 27.05), uniform("gb10", 1000 / 12.25)), link=Link(0.1, 1e9))
    alone = search(Problem(model(), fleet, Wanted(), Goal(1)))
    assert [spot.node for spot in alone.layout] == ["mac"]
    assert 1000 / alone.decode_ms == pytest.approx(27.05)


def test_a_long_prompt_in_parts_over_two_equal_machines() -> None:
    """32k rows of the 27B model: 25.0 s on one GB10, 14.7 s ideal on two (facts.md, the RFC's section 2)."""
    # 32,768 rows in parts of 4,096 are 8 parts, 3.1 s each on one machine: 8 x 3.1 = 24.8 s (25.0 measured).
    # Two halves of 1.55 s, and 4,096 rows of 20 KiB at 115 MB/s on the way: 83.9 MB = 0.73 s. The sum of a part is
    # 1.55 + 0.73 + 1.55 = 3.83 s, and 7 more parts behind the slowest, 7 x 1.55 = 10.85 s: 14.68 s,
    # which is 9 x 1.55 + 0.73.
    nodes = (uniform("a", 64, 3100, part=4096), uniform("b", 64, 3100, part=4096))
    wanted = Wanted(context=40_000, prompt=32_768, part=4096)
    problem = Problem(model(row_bytes=20 << 10), Fleet(nodes, link=Link(0.0, 115e6)), wanted, Goal(0, 1))
    half = price(problem.model, problem.fleet, wanted, problem.goal, [Spot("a", 0, 30), Spot("b", 30, 60)])
    way_back_ms = (20 << 10) / 115e6 * 1e3
    assert half.prompt_ms == pytest.approx(9 * 1550 + 729.4 + way_back_ms, abs=1)
    assert half.prompt_ms / 1e3 == pytest.approx(14.7, abs=0.05)
    assert half.first_token_ms == pytest.approx(half.prompt_ms)
    assert search(problem).layout == half.layout
    alone = price(problem.model, problem.fleet, wanted, problem.goal, [Spot("a", 0, 60)])
    assert alone.prompt_ms == pytest.approx(24_800)
    assert alone.prompt_ms / half.prompt_ms == pytest.approx(1.69, abs=0.005)


def test_a_slow_link_changes_the_choice_for_prompts_and_not_for_decode() -> None:
    # A part of 512 rows of 20 KiB is 10.5 MB: 91 ms at 1 Gbit/s (115 MB/s), 912 ms at 100 Mbit/s; a stage of half the
    # model takes 150 ms. So at 1 Gbit/s a split pays for prompts, and at 100 Mbit/s the link is the slowest:
    # 8 parts alone 8 x 300 = 2,400 ms; split at 100 Mbit/s 150 + 912 + 150 + 7 x 912 = 7,596 ms.
    # A row takes 0.2 or 1.8 ms, against 20 ms that are saved on the faster machine: decode stays there, and where its
    # memory holds only 40 of the 60 layers (1,000 bytes each, beside 4 buffers of a part), it has these at both widths.
    fast, slow = uniform("fast", 40, 300), uniform("slow", 60, 300)
    limited = replace(fast, limit_bytes=4 * 512 * (20 << 10) + 40_000)
    wanted = Wanted(context=4096, prompt=4096, part=512)

    def layout(goal: Goal, bytes_per_s: float, node: Node) -> list[tuple[str, int]]:
        fleet = Fleet((node, slow), link=Link(0.1, bytes_per_s))
        found = search(Problem(model(row_bytes=20 << 10), fleet, wanted, goal))
        return sorted((spot.node, spot.end - spot.first) for spot in found.layout)

    assert layout(Goal(0, 1), 115e6, fast) == [("fast", 30), ("slow", 30)]
    assert layout(Goal(0, 1), 11.5e6, fast) == [("fast", 60)]
    for bytes_per_s in (115e6, 11.5e6):
        assert layout(Goal(1), bytes_per_s, fast) == [("fast", 60)]
        assert layout(Goal(1), bytes_per_s, limited) == [("fast", 40), ("slow", 20)]


def test_the_ends_are_charged_to_rank_0_or_the_head_to_the_last() -> None:
    node = Node(
        "a", 1 << 40, {"a": Costs(Cost(1.0), Cost(0.0, 0.1))}, Costs(Cost(0.5), Cost(2.0)), Cost(0.25), Cost(3.0),
        overhead_bytes=7, spare_layers=1,
    )  # fmt: skip
    other = Node("b", 1 << 40, node.layers)
    held = Model("m", (Layer("a", 1000, 2, 11),) * 4, 100, embed_bytes=5000, head_bytes=6000)
    wanted = Wanted(context=8, streams=3, prompt=8, part=4, drafter_bytes=70)
    fleet = Fleet((node, other), link=Link(0.5, 1e5))
    layout = [Spot("a", 0, 3), Spot("b", 3, 4)]
    ring = price(held, fleet, wanted, Goal(1), layout)
    # decode: stage 0.5, 3 layers, embedding 0.25, head 3; rank 1: 1 layer; hops: 0.5 + 100 B at 100 B/ms = 1.5 each
    assert ring.stages[0].decode_ms == pytest.approx(0.5 + 3 + 0.25 + 3)
    assert ring.decode_ms == pytest.approx(6.75 + 1 + 1.5 + 1.5)
    # a layer: 1000 + 3 streams x (2 x 8 + 11) = 1081; staging 4 x 4 x 100 = 1600; spare KV of one layer 3 x 2 x 8 = 48
    assert ring.stages[0].memory_bytes == 3 * 1081 + 7 + 1600 + 48 + 5000 + 70 + 6000
    assert ring.stages[1].memory_bytes == 1081 + 1600
    # prompt: 2 parts; a: 2 + 3 x 0.4 + 0.25 = 3.45, b: 0.4, the link 0.5 + 4 = 4.5, back 1.5, the head once 3;
    # and once more the slowest, the link's 4
    assert ring.prompt_ms == pytest.approx(3.45 + 0.4 + 4.5 + 1.5 + 3 + 4)
    chain = price(held, fleet, Wanted(context=8, streams=3, sampler=SamplerAt.LAST), Goal(1), layout)
    assert chain.stages[0].decode_ms == pytest.approx(0.5 + 3 + 0.25)
    assert chain.hops[1].decode_ms == pytest.approx(0.5 + 24 / 100)


def test_throughput_is_the_slowest_by_the_streams_of_a_round() -> None:
    # 4 layers of 1 + 0.5 a row; 2 stages, 6 streams: rounds of 3 rows, 2.5 ms a layer; 3 layers 7.5 ms, / 3 = 2.5 ms a
    # token of all streams. One stream alone: 1 + 0.5 = 1.5 a layer, 6 ms.
    node = Node("a", 1 << 40, {"a": Costs(Cost(1.0, 0.5))})
    fleet = Fleet((node, Node("b", 1 << 40, node.layers)), link=Link(0.0, 1e12))
    found = price(
        model(4), fleet, Wanted(streams=6), Goal(0, 0, 1), [Spot("a", 0, 3), Spot("b", 3, 4)]
    )  # fmt: skip
    assert found.token_ms == pytest.approx(2.5)
    assert found.decode_ms == pytest.approx(6.0)
    assert found.tokens_per_s == pytest.approx(400.0)
    best = search(Problem(model(4), fleet, Wanted(streams=6), Goal(0, 0, 1)))
    assert [(s.first, s.end) for s in best.layout] == [(0, 2), (2, 4)]


def test_depth_and_kinds_of_layers_count() -> None:
    # Three layers of a kind that looks back at 0.001 ms a position, one that does not: at 1,000 positions 3 x 2 + 1.
    kinds = {"attention": Costs(Cost(0.5, 0.5, 0.001)), "linear": Costs(Cost(0.5, 0.5))}
    held = Model("m", tuple(Layer(kind, 1) for kind in ("attention", "attention", "linear", "attention")), 0)
    fleet = Fleet((Node("a", 1 << 40, kinds),))
    assert price(held, fleet, Wanted(depth=1000), Goal(1), [Spot("a", 0, 4)]).decode_ms == pytest.approx(7.0)
    with pytest.raises(ValueError, match="no measurement of layers of the kind attention"):
        price(held, Fleet((Node("a", 1, {"linear": Costs()}),)), Wanted(), Goal(1), [Spot("a", 0, 4)])


@pytest.mark.parametrize(
    "layout", [[("a", 0, 3)], [("a", 0, 2), ("b", 3, 4)], [("a", 0, 2), ("a", 2, 4)], [("a", 0, 0), ("b", 0, 4)], []]
)
def test_a_layout_that_does_not_cover_is_refused(layout: list[tuple[str, int, int]]) -> None:
    fleet = Fleet((uniform("a", 1), uniform("b", 1)))
    with pytest.raises(ValueError, match="layout"):
        price(model(4), fleet, Wanted(), Goal(1), [Spot(*spot) for spot in layout])


def test_an_order_that_stands_leaves_only_the_cuts_open() -> None:
    fleet = Fleet((uniform("fast", 10), uniform("slow", 40)), link=Link(0.0, 1e12))
    found = search(Problem(model(8), fleet, Wanted(), Goal(1), Pins(order=("slow", "fast"))))
    assert [(s.node, s.first, s.end) for s in found.layout] == [("slow", 0, 1), ("fast", 1, 8)]
