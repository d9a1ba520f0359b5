"""`ropeway stage MODEL --rank R`: one rank of a ring over several machines, by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from ropeway.cli import flags
from ropeway.cli.session import place_ring, ring_setup
from ropeway.launch.placement import CHUNK, Options
from ropeway.launch.rank import run_stage, say
from ropeway.types import SamplerAt


def stage(
    model: flags.Model,
    rank: Annotated[
        int, typer.Option("--rank", min=1, help="This machine's place in --ring; rank 0 runs `ropeway run`.")
    ],
    ring: Annotated[str, typer.Option("--ring", metavar="HOST:PORT,...", help="Every rank's address, in order.")],
    key: flags.Key = None,
    cuts: flags.Cuts = None,
    sampler: flags.Sampler = SamplerAt.FIRST,
    threads: flags.Threads = 0,
    context: flags.Context = 4096,
    parallel: flags.Parallel = 1,
    part: flags.Part = 0,
    gpu_layers: flags.GpuLayers = -1,
    verify_weights: flags.VerifyWeights = False,
    engine: flags.Engine = "",
    engines: flags.Engines = "",
    dtype: flags.Dtype = "",
    device: flags.Device = "",
    invariant: flags.Invariant = False,
    worker_cmd: flags.WorkerCmd = "",
    listen: flags.Listen = None,
) -> None:
    """Hold one range of layers until the ring ends. Give every machine the same model, cuts, sampler and key."""
    with flags.people() as interruption:
        setup = ring_setup(rank, ring, key, listen)
        options = Options(
            model,
            0,
            flags.parse_cuts(cuts),
            sampler,
            context,
            parallel,
            max(part, CHUNK),
            part,
            threads,
            gpu_layers,
            verify_weights,
            flags.parse_engines(engine, engines),
            dtype,
            device,
            invariant,
            worker_cmd,
        )
        placement = place_ring(options, setup)
        first, end = placement.layout.ranges[rank]
        say(rank, f"layers {first}..{end}, waiting for the ring at {setup.listen or setup.addresses[rank]}")
        status = run_stage(placement, setup, interruption)
        if interruption.cause is not None:
            raise interruption.cause
    raise typer.Exit(status)
