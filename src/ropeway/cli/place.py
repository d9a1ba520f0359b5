"""`ropeway place MODEL --nodes FILE`: where to cut a model on given machines, and what to expect of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ropeway.cli import flags
from ropeway.cli.place_picture import others, picture, svg
from ropeway.launch.drafter_facts import drafter_bytes
from ropeway.launch.drafting import DraftOptions
from ropeway.launch.placing import Ask, Planned, open_inventory, planned, problem_for
from ropeway.launch.ring_state import running_layout
from ropeway.placement.cost import Price
from ropeway.placement.drift import Proposal, propose
from ropeway.placement.explain import Alternative, alternatives
from ropeway.placement.inventory import Inventory
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted
from ropeway.types import SamplerAt


def place(
    model: flags.Model,
    nodes: Annotated[Path, typer.Option("--nodes", metavar="FILE", help="The machines and links: TOML or JSON.")],
    goal: flags.GoalOption = "decode",
    context: flags.Context = 4096,
    parallel: flags.Parallel = 1,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Rows of the prompt that is predicted.")] = 1024,
    part: Annotated[int, typer.Option("--part", min=1, help="Rows a part of it.")] = 512,
    depth: Annotated[int, typer.Option("--depth", min=0, help="Positions decode is predicted at; 0: the prompt.")] = 0,
    kv: Annotated[str, typer.Option("--kv", metavar="f16|q8_0|q4_0", help="Type of keys and values.")] = "f16",
    sampler: flags.Sampler = SamplerAt.FIRST,
    draft: flags.Draft = "none",
    first: Annotated[str, typer.Option("--first", metavar="NODE", help="Rank 0 must be this node.")] = "",
    pin: Annotated[
        list[str] | None, typer.Option("--pin", metavar="NODE=A..B", help="This node must hold exactly these layers.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option("--without", metavar="NODE", help="Leave this node out.")] = None,
    what_if: Annotated[
        list[str] | None, typer.Option("--what-if", metavar="NODE", help="Add a spare node, or drop one.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why not the other cuts.")] = False,
    svg_file: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture there.")] = None,
    from_url: Annotated[
        str, typer.Option("--from", metavar="URL", help="Take a running server's times in, and propose a better cut.")
    ] = "",
    as_json: flags.Json = False,
) -> None:
    """Search every choice of nodes, order and cuts for the fastest that fits."""
    with flags.people():
        drafter = drafter_bytes(DraftOptions.parse(draft), context, parallel)
        wanted = Wanted(context, parallel, min(prompt, context), part, depth, kv, sampler, drafter)
        pins = Pins(first, (), _pinned(pin or []), frozenset(without or []))
        ask = Ask(Goal.parse(goal), pins)
        inventory = open_inventory(nodes)
        problem = problem_for(model, inventory, wanted, ask)
        if from_url:
            _propose(problem, inventory, from_url, as_json)
            return
        base = planned(problem, inventory) if not what_if else None
        changed = problem_for(model, inventory, wanted, Ask(ask.goal, pins, tuple(what_if or ())))
        plan = base or planned(changed, inventory)
        other = alternatives(plan.problem, plan.price) if explain else []
        before = planned(problem, inventory).price if what_if else None
        if svg_file is not None:
            flags.write_text(svg_file, svg(plan.price, len(problem.model.layers), _title(model, plan)))
        if as_json:
            typer.echo(json.dumps(_json(plan, other, before)))
            return
        console = Console(highlight=False, markup=False)
        console.print(f"{_title(model, plan)}\n")
        console.print(picture(plan.price, len(problem.model.layers), console.width))
        _notes(console, plan, before)
        if explain:
            console.print("")
            console.print(others(other, plan.price))


def _title(model: str, plan: Planned) -> str:
    return f"{Path(model).name} for {plan.problem.goal}: layers {_ranges(plan.price)}"


def _ranges(price: Price) -> str:
    return ", ".join(f"{spot.first}..{spot.end}" for spot in price.layout)


def _notes(console: Console, plan: Planned, before: Price | None) -> None:
    """What is worth a line beside the picture."""
    nodes, used = plan.problem.nodes(), {spot.node for spot in plan.price.layout}
    if idle := [node.name for node in nodes if node.name not in used]:
        console.print(f"{', '.join(idle)} would not make it faster: left out")
    if doubtful := [node.name for node in nodes if node.spread > 0.1]:
        console.print(f"calibrated while busy (spread over 10 %), so the prediction is a guess: {', '.join(doubtful)}")
    if (price := plan.price).drafter_ms:
        console.print(
            f"the drafter takes {price.drafter_ms:.2f} ms a guess on rank 0, which waits {price.wait_ms:.2f} ms a "
            f"token: {price.guesses} fit in"
        )
    if before is not None:
        gain = 1 - plan.price.cost / before.cost if before.cost else 0.0
        console.print(f"against {before.decode_ms:.2f} ms a token and {before.first_token_ms:,.0f} ms: {gain:+.1%}")
    cuts = ",".join(str(spot.first) for spot in plan.price.layout[1:])
    if plan.addresses and cuts:
        console.print(f"--ring {','.join(plan.addresses)} --cuts {cuts}")
    elif cuts:
        console.print(f"--cuts {cuts}, rank by rank on {', '.join(spot.node for spot in plan.price.layout)}")


def _propose(problem: Problem, inventory: Inventory, url: str, as_json: bool) -> None:
    running = running_layout(url, inventory)
    found = propose(problem, running.layout, running.stages_ms, running.rows, running.depth)
    if as_json:
        typer.echo(
            json.dumps({"running": price_json(found.running), "best": price_json(found.best), "gain": found.gain})
        )
        return
    console = Console(highlight=False, markup=False)
    console.print(
        f"running: layers {_ranges(found.running)}, {found.running.decode_ms:.2f} ms a token by its own times\n"
    )
    console.print(picture(found.best, len(problem.model.layers), console.width))
    console.print(_verdict(found))


def _verdict(found: Proposal) -> str:
    if found.gain < 0.01:
        return "it is cut well as it is"
    cuts = ",".join(str(spot.first) for spot in found.best.layout[1:]) or "none"
    nodes = ", ".join(spot.node for spot in found.best.layout)
    return f"{found.gain:.1%} would be gained with --cuts {cuts} on {nodes}; drain and start it so, never in a request"


def _pinned(pins: list[str]) -> dict[str, tuple[int, int]]:
    found = {}
    for pin in pins:
        name, _, range_ = pin.rpartition("=")
        a, dots, b = range_.partition("..")
        if not name or not dots or not a.isdigit() or not b.isdigit():
            raise ValueError(f"pin: {pin!r} is not NODE=A..B")
        found[name] = (int(a), int(b))
    return found


def _json(plan: Planned, other: list[Alternative], before: Price | None) -> dict[str, object]:
    found: dict[str, object] = price_json(plan.price)
    found["goal"] = str(plan.problem.goal)
    found["addresses"] = list(plan.addresses)
    if before is not None:
        found["before"] = price_json(before)
    if other:
        found["others"] = [
            {"what": one.what, "why_not": one.why_not(plan.price), **price_json(one.price)} for one in other
        ]
    return found


def price_json(price: Price) -> dict[str, object]:
    """A price for `--json`."""
    return {
        "stages": [
            {
                "node": stage.spot.node,
                "first": stage.spot.first,
                "end": stage.spot.end,
                "decode_ms": stage.decode_ms,
                "part_ms": stage.part_ms,
                "memory_bytes": stage.memory_bytes,
                "limit_bytes": stage.limit_bytes,
            }
            for stage in price.stages
        ],
        "hops_ms": [hop.decode_ms for hop in price.hops],
        "cuts": [spot.first for spot in price.layout[1:]],
        "first_token_ms": price.first_token_ms,
        "decode_ms": price.decode_ms,
        "tokens_per_s": price.tokens_per_s,
        "cost": price.cost,
        "drafter_ms": price.drafter_ms,
        "guesses": price.guesses,
        "fits": price.fits,
    }
