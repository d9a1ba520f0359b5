"""From the nodes that are there to who holds which layers: the placement search over what each says of itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ropeway.checkpoints.checkpoint import Checkpoint
from ropeway.launch.model_facts import model_facts
from ropeway.launch.placement import Options
from ropeway.launch.placing import wanted_of
from ropeway.placement.budget import Infeasible
from ropeway.placement.facts import Cost, Costs, Fleet, Node
from ropeway.placement.inventory import node_from
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that answers: its id and label, and what it says of its machine."""

    node: str
    label: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def limit_bytes(self) -> int:
        """What a stage may take there."""
        limit = self.facts.get("limit_bytes", 0)
        return limit if type(limit) is int and limit > 0 else 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The nodes in the ring's order, and where the model is cut between them."""

    nodes: tuple[Candidate, ...]
    cuts: tuple[int, ...]


class DoesNotFit(OSError):
    """The nodes that are there cannot hold the model; the text says what is missing."""


def choose(
    checkpoint: Checkpoint,
    options: Options,
    candidates: Sequence[Candidate],
    keep: Collection[str] = (),
    avoid: Collection[str] = (),
) -> Chosen:
    """Who holds what. The first candidate is rank 0; `keep` are nodes that were in the ring before, which go first.

    `avoid` are nodes on which ranks have failed: they are taken only where the others cannot hold the model.

    As many stages as `options.stages` says, or as there are nodes but for those; more where fewer cannot hold it.
    Explicit cuts stay as they are. Raises DoesNotFit, ValueError.
    """
    here, others = candidates[0], list(candidates[1:])
    others.sort(key=lambda one: (one.node in avoid, one.node not in keep, -one.limit_bytes, one.node))
    if options.cuts is not None:
        if len(others) < len(options.cuts):
            raise DoesNotFit(f"the cuts make {len(options.cuts) + 1} stages, and {len(others) + 1} nodes are there")
        return Chosen((here, *others[: len(options.cuts)]), options.cuts)
    model = model_facts(checkpoint.path, options.model)
    wanted = wanted_of(options)
    sound = 1 + sum(one.node not in avoid for one in others)
    count = min(options.stages, sound, len(model.layers))
    while True:
        ring = (here, *others[: count - 1])
        measured = all("calibration" in one.facts for one in ring)
        fleet = Fleet(tuple(_node(one, measured=measured) for one in ring))
        pins = Pins(first=here.node, order=tuple(one.node for one in ring))
        try:
            layout = search(Problem(model, fleet, wanted, Goal(throughput=1.0), pins)).layout
        except Infeasible as error:
            if count >= min(len(candidates), len(model.layers)):
                raise DoesNotFit(_named(str(error), candidates)) from None
            count += 1  # more nodes than were asked for, rather than none
            continue
        by_node = {one.node: one for one in ring}
        return Chosen(tuple(by_node[spot.node] for spot in layout), tuple(spot.first for spot in layout[1:]))


def _node(candidate: Candidate, *, measured: bool) -> Node:
    """By what was measured there, where that holds for every node; else as quick as it has cores."""
    if measured:
        entry = {**candidate.facts["calibration"], "name": candidate.node, "limit_bytes": candidate.limit_bytes}
        return node_from(entry)
    cores = candidate.facts.get("cores", 1)
    cost = Cost(1.0 / cores if type(cores) is int and cores > 0 else 1.0)
    return Node(candidate.node, candidate.limit_bytes, {"*": Costs(cost, cost)})


def _named(text: str, candidates: Sequence[Candidate]) -> str:
    for one in candidates:
        text = text.replace(one.node, one.label)
    return text
