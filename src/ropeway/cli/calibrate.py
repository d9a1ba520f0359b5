"""`ropeway calibrate MODEL`: time this machine on a few layers of a model, for `ropeway place`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ropeway.checkpoints.checkpoint import format_of, open_checkpoint, resolve_checkpoint
from ropeway.cli import flags
from ropeway.cli.place_picture import size
from ropeway.engines.registry import DEFAULT
from ropeway.launch.drafter_facts import drafter_ms
from ropeway.launch.drafting import DraftOptions
from ropeway.launch.placing import calibrated_here
from ropeway.placement.calibrated import Kept
from ropeway.placement.calibration import LIMIT_S, Settings
from ropeway.placement.inventory import node_json
from ropeway.placement.machine import machine_facts


def calibrate(
    model: flags.Model,
    name: Annotated[str, typer.Option("--name", help="This node's name; the machine's unless given.")] = "",
    engine: flags.Engine = "",
    threads: flags.Threads = 0,
    gpu_layers: flags.GpuLayers = -1,
    streams: Annotated[int, typer.Option("--streams", min=1, max=64, help="Rows of the batch that is timed.")] = 4,
    deep: Annotated[int, typer.Option("--deep", min=64, help="The long context that is timed, in positions.")] = 768,
    limit_s: Annotated[float, typer.Option("--limit-s", min=1, help="Stop after so many seconds.")] = LIMIT_S,
    limit_gb: Annotated[
        float, typer.Option("--limit-gb", min=0, help="What a model may use here (gpu_limit); 0: all but the floor.")
    ] = 0.0,
    draft: flags.Draft = "none",
    shared: Annotated[
        bool, typer.Option("--shared", help="Other stages run on this machine too: its caches are theirs as well.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure even where a calibration is kept.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the node there, as JSON.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Measure ms a layer by kind, in decode and for prompts, and those of the embeddings and the head. Kept."""
    with flags.people():
        path = resolve_checkpoint(model)
        part = max(16, min(256, deep // 4))
        settings = Settings(
            engine or DEFAULT[format_of(path)],
            streams,
            part,
            min(64, part),
            deep,
            threads=threads,
            gpu_layers=gpu_layers,
            shared=shared,
            limit_s=limit_s,
        )
        machine = machine_facts(bandwidth=False)
        found = calibrated_here(model, name, settings, again=again, machine=machine)
        node = found.calibration.node
        if drafted := drafter_ms(DraftOptions.parse(draft), threads, gpu_layers):
            node = replace(node, drafter_ms=drafted)
        if limit_gb:
            node = replace(node, limit_bytes=round(limit_gb * 1e9))
        about = {"processor": machine.processor, "cores": machine.cores, "seconds": round(found.calibration.seconds, 1)}
        value = node_json(node, open_checkpoint(path).identity(), about)
        if out is not None:
            flags.write_text(out, json.dumps(value, indent=1) + "\n")
        if as_json:
            typer.echo(json.dumps(value | {"fresh": found.fresh, "doubts": found.calibration.doubts}))
            return
        _print(found)
        if drafted:
            typer.echo(f"the drafter: {drafted:.3f} ms a guess")


def _print(found: Kept) -> None:
    calibration, node = found.calibration, found.calibration.node
    how = f"timed in {calibration.seconds:.1f} s, {calibration.cycles} rounds" if found.fresh else "kept from before"
    layers = ", ".join(f"{first}..{end}" for first, end in calibration.ranges)
    typer.echo(
        f"{node.name}: {node.engine} on {node.backend}, layers {layers} ({size(calibration.weights_bytes)}), {how}"
    )
    for kind, costs in node.layers.items():
        typer.echo(
            f"a layer ({kind}): {costs.decode.ms(1, 64):.3f} ms a token at 64 positions, "
            f"{costs.decode.ms(1, 768):.3f} at 768, {costs.decode.ms(4, 64):.3f} for 4 rows; "
            f"a part of 256 rows {costs.prompt.ms(256, 128):.2f} ms"
        )
    typer.echo(
        f"a stage itself: {node.stage.decode.ms(1):.3f} ms; head {node.head.ms(1):.3f} ms; spread {node.spread:.1%}"
    )
    typer.echo(
        f"a model may use {size(node.limit_bytes)}; a stage takes {size(node.overhead_bytes)} beside weights and KV"
    )
    typer.echo(
        f"waiting for its turn in a ring, a token takes {node.rested:.2f} times as long; a hop {node.hop_ms:.3f} ms"
    )
    if calibration.doubts:
        typer.echo(calibration.doubts)
