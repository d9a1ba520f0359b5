"""`ropeway facts`: what this machine is, as placement sees it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ropeway.cli import flags
from ropeway.cli.place_picture import size
from ropeway.engines.llamacpp.engine import offload
from ropeway.engines.registry import ENGINES
from ropeway.placement.calibrated import engine_version
from ropeway.placement.machine import machine_facts


def facts(
    quick: Annotated[bool, typer.Option("--quick", help="Leave the memory's bandwidth unmeasured.")] = False,
    as_json: flags.Json = False,
) -> None:
    """Memory and what a model may use of it, cores, bandwidth, engines and what they run on."""
    with flags.people():
        machine = machine_facts(bandwidth=not quick)
        engines = {name: version for name in ENGINES if (version := engine_version(name))}
        backend = offload(-1)[0].name.lower()
        if as_json:
            typer.echo(json.dumps(asdict(machine) | {"engines": engines, "backend": backend, "cut_every": 1}))
            return
        typer.echo(f"{machine.name}: {machine.processor}, {machine.cores} cores")
        unified = ", unified" if machine.unified else ""
        typer.echo(f"memory {size(machine.memory_bytes)}{unified}, a model may use {size(machine.limit_bytes)}")
        if machine.read_bytes_per_s:
            typer.echo(f"one core reads {machine.read_bytes_per_s / 1e9:.1f} GB/s from memory")
        typer.echo(f"llama.cpp runs on {backend}")
        for name, version in engines.items():
            typer.echo(f"engine {name} {version}; may be cut at every layer")
