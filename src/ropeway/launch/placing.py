"""From a nodes file to a placement problem for a checkpoint, and from its answer to the options of a ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ropeway.checkpoints.checkpoint import format_of, locate_checkpoint, open_checkpoint, resolve_checkpoint
from ropeway.engines.registry import DEFAULT
from ropeway.launch.drafter_facts import drafter_bytes
from ropeway.launch.drafting import DraftOptions
from ropeway.launch.hops import hop_ms
from ropeway.launch.model_facts import model_facts
from ropeway.launch.placement import Options
from ropeway.placement.calibrated import Kept, kept
from ropeway.placement.calibration import Calibration, Settings, calibrate
from ropeway.placement.cost import Price
from ropeway.placement.explain import with_node
from ropeway.placement.facts import Fleet, Link
from ropeway.placement.inventory import Inventory, read_inventory
from ropeway.placement.machine import Machine, machine_facts, usable_cores
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted

LOOPBACK = Link(0.0, 1e9)
"""Between two processes of one machine: 1 to 2.6 GB/s, and the delay is in what the ends take (launch/hops.py)."""

NO_DRAFTS = DraftOptions()
QUICK_S = 12.0
"""Longest calibration where somebody waits for a reply. It is kept, and a longer one by hand takes its place."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a person asks of a placement, beside the load: a goal, pins, and nodes to add or drop."""

    goal: Goal = field(default_factory=lambda: Goal(decode=1.0))
    pins: Pins = field(default_factory=Pins)
    what_if: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A problem, the layout that answers it, and where its nodes are dialled."""

    problem: Problem
    price: Price
    addresses: tuple[str, ...] = ()


def open_inventory(path: Path) -> Inventory:
    """Read a nodes file (JSON where its name ends in .json, else TOML). Raises ValueError that names what is wrong."""

    def read(name: str) -> str:
        try:
            return (path.parent / name).read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"nodes: {path.parent / name}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ValueError(f"nodes: {path.parent / name}: this is no UTF-8 text") from None

    return read_inventory(read(path.name), read, is_json=path.suffix == ".json")


def problem_for(model: str, inventory: Inventory, wanted: Wanted, ask: Ask) -> Problem:
    """The problem of placing `model` on the nodes of a file. Raises CheckpointError, ValueError."""
    path = locate_checkpoint(model)  # headers will do
    checkpoint = open_checkpoint(path)
    if inventory.models:
        identity = checkpoint.identity()
        for name, measured in inventory.models.items():
            if measured != identity:
                raise ValueError(
                    f"node {name}: it was calibrated for another model ({measured[:12]}, this one is {identity[:12]})"
                )
    pins = replace(ask.pins, leave_out=ask.pins.leave_out | inventory.spare)
    problem = Problem(model_facts(path, model), inventory.fleet, wanted, ask.goal, pins)
    for name in ask.what_if:
        problem = with_node(problem, sorted(inventory.spare), name)
    return problem


def planned(problem: Problem, inventory: Inventory | None = None) -> Planned:
    """The best layout. Raises Infeasible, ValueError."""
    price = search(problem)
    known = {} if inventory is None else inventory.addresses
    addresses = tuple(known[spot.node] for spot in price.layout if spot.node in known)
    return Planned(problem, price, addresses if len(addresses) == len(price.layout) else ())


def calibrated_here(
    model: str, name: str, settings: Settings | None = None, *, again: bool = False, machine: Machine | None = None
) -> Kept:
    """This machine calibrated for a model, out of the cache where it has been. Raises EngineError, CheckpointError."""
    path = resolve_checkpoint(model)
    machine = machine or machine_facts(bandwidth=False)
    settings = settings or Settings(DEFAULT[format_of(path)])
    if not settings.threads:
        settings = replace(settings, threads=usable_cores())

    facts = model_facts(path, model)

    def measure() -> Calibration:
        found = calibrate(name or machine.name, path, facts, machine.memory_bytes, settings)
        return replace(found, node=replace(found.node, hop_ms=hop_ms(facts.row_bytes // 4)))

    return kept(
        name or machine.name,
        open_checkpoint(path).identity(),
        machine,
        settings,
        measure,
        again=again,
    )


def local_fleet(model: str, stages: int, threads: int) -> Fleet:
    """This machine as so many equal nodes that share its cores and memory out. Calibrates where it has not been.

    Raises EngineError, CheckpointError.
    """
    path = resolve_checkpoint(model)
    share = max(1, usable_cores() // stages)
    settings = Settings(DEFAULT[format_of(path)], threads=threads or share, shared=stages > 1, limit_s=QUICK_S)
    node = calibrated_here(model, "here", settings).calibration.node
    limit = node.limit_bytes // stages
    return Fleet(tuple(replace(node, name=f"stage{n}", limit_bytes=limit) for n in range(stages)), link=LOOPBACK)


def wanted_of(options: Options, prompt: int = 1024, draft: DraftOptions = NO_DRAFTS) -> Wanted:
    """The load that a ring's options ask for, with prompts of so many rows. Raises CheckpointError for the drafter."""
    return Wanted(
        context=options.context,
        streams=options.parallel,
        prompt=min(prompt, options.context),
        part=options.part or options.chunk,
        sampler=options.sampler,
        drafter_bytes=drafter_bytes(draft, options.context, options.parallel),
    )


def place_options(
    options: Options, where: str, goal: str, ring: Sequence[str] = (), draft: DraftOptions = NO_DRAFTS
) -> tuple[Options, Planned]:
    """Options with the best cuts: `where` is a nodes file, or "local" for this machine's own `stages`.

    With `ring`, the addresses of a ring that stands, the file's nodes at those addresses keep that order and only the
    cuts are chosen; every rank that asks the same gets the same. Rank 0 must have room for the model that drafts, too.
    Raises Infeasible, ValueError, EngineError, CheckpointError.
    """
    wanted, wish = wanted_of(options, draft=draft), Goal.parse(goal)
    if options.cuts is not None:
        raise ValueError("place: --cuts says where to cut already; use one of the two")
    if where == "local":
        if ring:
            raise ValueError("place: a ring over several machines needs a nodes file")
        path = resolve_checkpoint(options.model)
        fleet = local_fleet(options.model, options.stages, options.threads)
        order = tuple(node.name for node in fleet.nodes)
        plan = planned(Problem(model_facts(path, options.model), fleet, wanted, wish, Pins(order=order)))
    else:
        inventory = open_inventory(Path(where))
        pins = Pins(order=_order(inventory, ring)) if ring else Pins()
        plan = planned(problem_for(options.model, inventory, wanted, Ask(wish, pins)), inventory)
    layout = plan.price.layout
    return replace(options, stages=len(layout), cuts=tuple(spot.first for spot in layout[1:])), plan


def _order(inventory: Inventory, ring: Sequence[str]) -> tuple[str, ...]:
    by_address = {address: name for name, address in inventory.addresses.items()}
    if missing := [address for address in ring if address not in by_address]:
        raise ValueError(f"place: no node of the file has the address {missing[0]} of --ring")
    return tuple(by_address[address] for address in ring)
