"""Rings of real processes whose stages wait for as long as given costs say, and the nodes that have these costs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from ropeway.launch.hops import clockwork, hop_ms
from ropeway.launch.keys import new_key
from ropeway.placement.facts import Cost, Costs, Layer, Link, Model, Node
from ropeway.placement.probe import Measured, probe_layout, probe_links
from ropeway.serving.loop import Loop
from ropeway.transport import RingConfig, tcp

MODEL = Model("clockwork", (Layer("a", 1),) * 30, 20 << 10)
"""Rows as wide as a 27B model's."""


def clock_nodes(ratio: int) -> tuple[Node, Node]:
    """12 ms a token and 80 ms a part of 128 rows on the fast one; what a hop costs there is measured."""
    layer = Costs(Cost(0.35, 0.0, 0.0001), Cost(0.1, 0.018, 0.00001))
    stage = Costs(Cost(0.3), Cost(0.5))
    hop = hop_ms(64)  # of small rows: what rows take on the link is the link's
    fast = Node("fast", 1 << 40, {"a": layer}, stage, hop_ms=hop)
    slow = Node("slow", 1 << 40, {"a": layer.times(ratio)}, stage.times(ratio), hop_ms=hop)
    return fast, slow


@contextlib.contextmanager
def ring(nodes: tuple[Node, Node], cut: int, part: int) -> Iterator[Loop]:
    """A ring that is cut there; rank 0 alone where it has all layers."""
    layers = len(MODEL.layers)
    held = [costs(node, count) for node, count in zip(nodes, (cut, layers - cut), strict=True) if count]
    with clockwork(held, MODEL.row_bytes // 4, part) as loop:
        yield loop


def costs(node: Node, layers: int) -> Costs:
    """Those of a stage of so many layers."""
    layer, stage = node.layers["a"], node.stage

    def held(one: Cost, own: Cost) -> Cost:
        return Cost(
            own.fixed_ms + layers * one.fixed_ms,
            own.row_ms + layers * one.row_ms,
            own.depth_ms + layers * one.depth_ms,
        )

    return Costs(held(layer.decode, stage.decode), held(layer.prompt, stage.prompt))


def probed() -> Link:
    """Loopback, as `ropeway probe` of two ranks measures it."""
    listeners = [tcp.listen("127.0.0.1:0") for _ in range(2)]
    addresses = tuple(map(tcp.listening_address, listeners))
    key = new_key()

    def probe(rank: int) -> list[Measured]:
        return probe_links(RingConfig(rank, probe_layout(2), key, addresses, 1, listener=listeners[rank]), 30.0)

    try:
        with ThreadPoolExecutor(2) as pool:
            found = next(iter(pool.map(probe, range(2))))[0]
    finally:
        for listener in listeners:
            listener.close()
    if found.link is None:
        raise SystemExit(f"the loopback cannot be probed: {found.trouble}")
    return found.link
