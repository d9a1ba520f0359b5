"""What placement knows of a model, its nodes and their links. Pure values; knows nothing of engines or sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

KV_SHARE: Final = {"f16": 1.0, "bf16": 1.0, "q8_0": 17 / 32, "q4_0": 9 / 32, "f32": 2.0}
"""Bytes of a position's keys and values by their type, as a share of f16's (ggml's blocks of 32: 34 and 18 bytes)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of a batch: `fixed_ms`, `row_ms` for each row, `depth_ms` for each row and position it looks back.

    A batch of `rows` rows that attend to `depth` positions each, on average, takes
    fixed_ms + rows * (row_ms + depth * depth_ms).
    """

    fixed_ms: float = 0.0
    row_ms: float = 0.0
    depth_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed_ms", "row_ms", "depth_ms"):
            if not 0.0 <= getattr(self, name) < 1e12:
                raise ValueError(f"{name}: {getattr(self, name)} is not a time")

    def ms(self, rows: float, depth: float = 0.0) -> float:
        """Milliseconds of a batch."""
        return self.fixed_ms + rows * (self.row_ms + depth * self.depth_ms)

    def times(self, factor: float) -> Cost:
        """The same work on something `factor` times as slow."""
        return Cost(self.fixed_ms * factor, self.row_ms * factor, self.depth_ms * factor)


@dataclass(frozen=True, slots=True)
class Costs:
    """The same work in decode (a row a stream) and in the parts of a prompt, which other kernels may do."""

    decode: Cost = field(default_factory=Cost)
    prompt: Cost = field(default_factory=Cost)

    def times(self, factor: float) -> Costs:
        """As `Cost.times`."""
        return Costs(self.decode.times(factor), self.prompt.times(factor))


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its kind (layers of a kind share a measurement) and what it needs of memory.

    `kv_row_bytes` a position of a stream, with f16 keys and values; `state_bytes` a stream, whatever its length.
    """

    kind: str
    weights_bytes: int
    kv_row_bytes: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """A model as placement sees it. `embed_bytes` and `head_bytes` (norm included) go where they are held."""

    name: str
    layers: tuple[Layer, ...]
    row_bytes: int
    embed_bytes: int = 0
    head_bytes: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of layers, in order of their first layer."""
        return tuple(dict.fromkeys(layer.kind for layer in self.layers))


@dataclass(frozen=True, slots=True)
class Node:
    """A machine (or process) that can be given a stage, as measured.

    `limit_bytes` is what a model may use there. `layers` are a layer's costs by kind, `stage` those of having a stage
    at all, `embed` those of looking rows up, `head` those of the norm and output matrix. `overhead_bytes` is what a
    loaded stage takes beside weights and KV; some engines keep the KV of `spare_layers` more layers than a stage has.
    A stage may begin and end only at multiples of `cut_every`. In a ring a stage waits for its turn between two tokens,
    and then takes `rested` times as long as one that computes all the time. `hop_ms` is what its ends of two hops cost
    beside the links. `drafter_ms` is what a small model takes there for a guess (0: it was not measured). `slower`
    stretches every cost, for machines that one wants to try out.
    """

    name: str
    limit_bytes: int
    layers: Mapping[str, Costs]
    stage: Costs = field(default_factory=Costs)
    embed: Cost = field(default_factory=Cost)
    head: Cost = field(default_factory=Cost)
    backend: str = "cpu"
    engine: str = "llamacpp"
    overhead_bytes: int = 0
    spare_layers: int = 0
    cut_every: int = 1
    rested: float = 1.0
    hop_ms: float = 0.0
    drafter_ms: float = 0.0
    slower: float = 1.0
    spread: float = 0.0
    """Of the measurements: the interquartile range as a share of the median, the widest of all."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: a node needs one")
        if self.limit_bytes < 0:
            raise ValueError(f"limit_bytes: {self.name} has {self.limit_bytes}")
        for name in ("hop_ms", "drafter_ms"):
            if not 0.0 <= getattr(self, name) < 1e9:
                raise ValueError(f"{name}: {self.name} has {getattr(self, name)}")
        if self.cut_every < 1:
            raise ValueError(f"cut_every: {self.name} has {self.cut_every}, expected at least 1")
        for name in ("slower", "rested"):
            if not 0.0 < getattr(self, name) < 1e6:
                raise ValueError(f"{name}: {self.name} has {getattr(self, name)}")

    def costs_of(self, kind: str) -> Costs:
        """A layer's costs. Raises ValueError for a kind that was not measured there."""
        found = self.layers.get(kind, self.layers.get("*"))
        if found is None:
            raise ValueError(f"node {self.name} has no measurement of layers of the kind {kind}: calibrate it there")
        return found

    def scaled(self) -> Node:
        """The same node with `slower` taken into its costs."""
        if self.slower == 1.0:
            return self
        return replace(
            self,
            layers={kind: costs.times(self.slower) for kind, costs in self.layers.items()},
            stage=self.stage.times(self.slower),
            embed=self.embed.times(self.slower),
            head=self.head.times(self.slower),
            hop_ms=self.hop_ms * self.slower,
            drafter_ms=self.drafter_ms * self.slower,
            slower=1.0,
        )


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two nodes: the delay of a small message, and what it carries."""

    latency_ms: float = 0.1
    bytes_per_s: float = 115e6

    def __post_init__(self) -> None:
        if not 0.0 <= self.latency_ms < 1e9 or not self.bytes_per_s > 0.0:
            raise ValueError(f"link: {self.latency_ms} ms and {self.bytes_per_s} bytes a second cannot be")

    def carry_ms(self, payload_bytes: float) -> float:
        """Milliseconds that a payload keeps the link busy."""
        return payload_bytes / self.bytes_per_s * 1e3


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes that may be used, and the links by (from, to); `link` for pairs that were not measured."""

    nodes: tuple[Node, ...]
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    link: Link = field(default_factory=Link)

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        if len(set(names)) < len(names):
            raise ValueError(f"nodes: a name occurs twice in {', '.join(names)}")

    def node(self, name: str) -> Node:
        """The node of that name. Raises ValueError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise ValueError(f"node: {name!r} is none of {', '.join(node.name for node in self.nodes)}")

    def between(self, sender: str, receiver: str) -> Link:
        """The link from one node to another, with what its ends cost."""
        link = self.links.get((sender, receiver), self.link)
        ends_ms = sum(node.hop_ms * node.slower for node in self.nodes if node.name in (sender, receiver)) / 2
        return replace(link, latency_ms=link.latency_ms + ends_ms) if ends_ms else link
