"""`ropeway check MODEL`: a placement against the whole model in one process, step by step."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ropeway.cli import flags
from ropeway.cli.session import open_rank0, stages_json
from ropeway.launch.drafting import DraftOptions, open_drafting
from ropeway.launch.placement import CHUNK, Options
from ropeway.launch.rank0 import Rank0
from ropeway.serving.speech import Speech
from ropeway.types import SamplerAt
from ropeway.verify.compare import Comparison
from ropeway.verify.passage import passage
from ropeway.verify.repeat import check as run_check


def check(
    model: flags.Model,
    stages: flags.Stages = 2,
    cuts: flags.Cuts = None,
    sampler: flags.Sampler = SamplerAt.FIRST,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Tokens to decode for each stream.")] = 32,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", min=1, help="Length of each prompt.")] = 200,
    streams: Annotated[int, typer.Option("--streams", min=1, help="Streams at once, each with its own prompt.")] = 1,
    threads: flags.Threads = 0,
    context: flags.Context = 4096,
    part: flags.Part = 0,
    groups: Annotated[int, typer.Option("--groups", min=1, help="Rounds under way at once.")] = 1,
    draft: flags.Draft = "none",
    draft_batch: flags.DraftBatch = False,
    gpu_layers: flags.GpuLayers = -1,
    verify_weights: flags.VerifyWeights = False,
    engine: flags.Engine = "",
    engines: flags.Engines = "",
    dtype: flags.Dtype = "",
    device: flags.Device = "",
    invariant: flags.Invariant = False,
    worker_cmd: flags.WorkerCmd = "",
    ring: flags.RingOption = None,
    key: flags.Key = None,
    listen: flags.Listen = None,
    as_json: flags.Json = False,
) -> None:
    """Decode on the ring and on the whole model, and compare every step's logits.

    Exit status 1 where a placement that promises the same bits does not keep them.
    """
    with flags.people() as interruption:
        if prompt_tokens + steps > context:
            raise ValueError(f"context: {context} does not hold {prompt_tokens} prompt tokens and {steps} steps")
        options = Options(
            model,
            stages,
            flags.parse_cuts(cuts),
            sampler,
            context,
            streams,
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
        drafts = DraftOptions.parse(draft, batch=draft_batch)
        with (
            open_rank0(options, interruption, ring, key, listen) as rank0,
            open_drafting(drafts, rank0.placement, rank0.stage.engine) as drafting,
        ):
            prompts = _prompts(rank0, streams, prompt_tokens)
            comparison = run_check(rank0, prompts, steps, groups=groups, drafting=drafting)
            promised = _promises_bits(rank0)
            _print(rank0, comparison, promised, as_json)
        if promised and comparison.equal_steps != comparison.steps:
            raise typer.Exit(flags.EXIT_FAILED)


def _prompts(rank0: Rank0, streams: int, tokens: int) -> list[list[int]]:
    """Prose of exactly `tokens` tokens a stream."""
    speech = Speech(rank0.placement.path)
    prompts = []
    for number in range(streams):
        ids: list[int] = []
        characters = 4 * tokens
        while len(ids) < tokens:
            text = passage(characters, skip=50 * number)
            ids = speech.vocabulary.tokenize(text, add_special=True, parse_special=False)
            characters *= 2
        prompts.append(ids[:tokens])
    speech.close()
    return prompts


def _promises_bits(rank0: Rank0) -> bool:
    """Every stage runs the same engine on the same backend."""
    return len({(fact.describe.engine, fact.describe.backend) for fact in rank0.facts}) == 1


def _print(rank0: Rank0, c: Comparison, promised: bool, as_json: bool) -> None:
    chain = rank0.placement.layout.sampler is SamplerAt.LAST and rank0.ring is not None
    if as_json:
        value = {
            "steps": c.steps,
            "equal_steps": c.equal_steps,
            "max_abs_diff": None if chain else c.max_abs_diff,
            "kl_mean": None if chain else c.kl_mean,
            "kl_max": None if chain else c.kl_max,
            "top1": c.top1,
            "promises_bits": promised,
            "stages": stages_json(rank0),
        }
        typer.echo(json.dumps(value))
        return
    ranges = ", ".join(f"{first}..{end}" for first, end in rank0.placement.layout.ranges)
    typer.echo(f"layers {ranges} against one process: {c.equal_steps} of {c.steps} steps equal, bit for bit")
    if chain:
        typer.echo("the last rank chose the tokens, so tokens were compared, not logits")
    elif c.equal_steps < c.steps:
        typer.echo(f"largest logit difference {c.max_abs_diff:.3g}, KL mean {c.kl_mean:.3g}, largest {c.kl_max:.3g}")
    if c.equal_steps < c.steps:
        typer.echo(f"the likeliest token agrees at {c.top1:.1%} of the steps")
