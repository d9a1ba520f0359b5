"""From what Ray says of its nodes to who holds which layers, and to what is asked of Ray for it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ropeway.checkpoints.checkpoint import Checkpoint
from ropeway.launch.cluster_cuts import Candidate, DoesNotFit, choose
from ropeway.launch.model_facts import model_facts
from ropeway.launch.placement import Options
from ropeway.launch.placing import wanted_of
from ropeway.placement.cost import Spot, stage_bytes
from ropeway.placement.facts import Node
from ropeway.types import SamplerAt, ranges_from_cuts

PINCH: Final = 0.001
"""Of the resource that each node has of itself alone (`node:ADDRESS`), to say that a rank is meant for that node."""
ROOMY: Final = 1 << 50
"""Where weights go to a device, whose memory Ray knows nothing of: its engine says when it is too small."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What every rank asks of its node: so many CPUs (0: all that are free there) and GPUs."""

    cpus: float = 0.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus"):
            if not 0.0 <= getattr(self, name) < 1e6:
                raise ValueError(f"ray-{name}: {getattr(self, name)} is not a number of {name.upper()}")


@dataclass(frozen=True, slots=True)
class RayNode:
    """A living node: its id, its address, and what is free there of Ray's resources."""

    node: str
    address: str
    free: dict[str, float]

    def cpus(self, demand: Demand) -> float:
        """The CPUs that a rank would have here; 0 where not a whole one is free and no number was said."""
        return demand.cpus or float(int(self.free.get("CPU", 0.0)))

    def suits(self, demand: Demand) -> bool:
        """Whether there is room for a rank."""
        enough = 0 < self.cpus(demand) <= self.free.get("CPU", 0.0)
        return enough and self.free.get("GPU", 0.0) >= demand.gpus


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank's node, the CPUs it has there, and the bundle of a placement group that stands for both."""

    node: RayNode
    cpus: float
    bundle: dict[str, float]


@dataclass(frozen=True, slots=True)
class Seats:
    """One for each rank, and where the model is cut between them."""

    seats: tuple[Seat, ...]
    cuts: tuple[int, ...]


def living(nodes: Sequence[dict[str, Any]], free: dict[str, dict[str, float]]) -> list[RayNode]:
    """The nodes of `ray.nodes()` that live, with what is free there."""
    return [
        RayNode(node["NodeID"], node["NodeManagerAddress"], free[node["NodeID"]])
        for node in nodes
        if node["Alive"] and node["NodeID"] in free
    ]


def seat(
    checkpoint: Checkpoint, options: Options, nodes: Sequence[RayNode], demand: Demand, avoid: Collection[str] = ()
) -> Seats:
    """Cut the model for the nodes with room: layers by CPUs, within memory; those in `avoid` only where others are few.

    Rank 0, which has most to do, goes to the node with most CPUs. Raises DoesNotFit, ValueError.
    """
    world = options.stages if options.cuts is None else len(options.cuts) + 1
    there = [node for node in nodes if node.suits(demand)]
    if len(there) < world:
        what = f"{demand.cpus:g} free CPUs" if demand.cpus else "a free CPU"
        what += f" and {demand.gpus:g} GPUs" if demand.gpus else ""
        raise DoesNotFit(f"{world} ranks need {world} nodes, and {len(there)} of {len(nodes)} have {what}")
    there.sort(key=lambda node: (node.node in avoid, -node.cpus(demand), -_memory(node, demand), node.node))
    facts = [
        Candidate(n.node, n.address, {"cores": _weight(n, demand), "limit_bytes": _memory(n, demand)}) for n in there
    ]
    chosen = choose(checkpoint, options, facts, keep=[one.node for one in there if one.node not in avoid])
    by_id = {node.node: node for node in there}
    ring = [by_id[one.node] for one in chosen.nodes]
    needed = _stage_bytes(checkpoint, options, chosen.cuts)
    seats = tuple(
        Seat(node, node.cpus(demand), _bundle(node, demand, 0 if demand.gpus else size))
        for node, size in zip(ring, needed, strict=True)
    )
    return Seats(seats, chosen.cuts)


def _weight(node: RayNode, demand: Demand) -> int:
    """How quick a node is taken to be; parts of a CPU count, and where GPUs compute all are alike."""
    return 1 if demand.gpus else max(1, round(node.cpus(demand) * 100))


def _memory(node: RayNode, demand: Demand) -> int:
    return ROOMY if demand.gpus else int(node.free.get("memory", 0.0))


def _bundle(node: RayNode, demand: Demand, memory_bytes: int) -> dict[str, float]:
    bundle = {"CPU": node.cpus(demand), "GPU": demand.gpus, "memory": float(memory_bytes)}
    return {name: amount for name, amount in bundle.items() if amount} | {f"node:{node.address}": PINCH}


def _stage_bytes(checkpoint: Checkpoint, options: Options, cuts: tuple[int, ...]) -> list[int]:
    """What each stage takes: weights, keys and values, and the ends that it has."""
    model, wanted = model_facts(checkpoint.path, options.model), wanted_of(options)
    ranges = ranges_from_cuts(checkpoint.layers, cuts)
    head = 0 if options.sampler is SamplerAt.FIRST else len(ranges) - 1
    return [
        stage_bytes(model, Node("any", ROOMY, {}), wanted, Spot("any", first, end), embeds=rank == 0, head=rank == head)
        for rank, (first, end) in enumerate(ranges)
    ]
