"""`ropeway run MODEL PROMPT`: one reply from a split model, on this machine or over several."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ropeway.cli import flags
from ropeway.cli.reply import Reply, print_pieces, stream_reply
from ropeway.cli.session import open_rank0, stages_json
from ropeway.cli.trace import TraceFile
from ropeway.engines.base import EngineError
from ropeway.launch.drafting import DraftOptions, open_drafting
from ropeway.launch.parts import part_size
from ropeway.launch.placement import CHUNK, Options
from ropeway.launch.placing import Planned, place_options
from ropeway.launch.rank0 import Rank0
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.prediction import Prediction
from ropeway.serving.sequence import SamplingParams, Sequence
from ropeway.serving.speech import PlainChooser, Speech
from ropeway.transport import RingEnded
from ropeway.types import SamplerAt


def run(
    model: flags.Model,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the user says.")],
    stages: flags.Stages = 2,
    cuts: flags.Cuts = None,
    sampler: flags.Sampler = SamplerAt.FIRST,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest reply, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option("--temperature", help="0 takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option("--top-k", help="Only the k likeliest; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Only the likeliest that reach p together.")] = 1.0,
    min_p: Annotated[float, typer.Option("--min-p", help="Only those at least this share of the likeliest.")] = 0.0,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed gives the same reply.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take PROMPT as it is, without the chat template.")] = False,
    threads: flags.Threads = 0,
    context: flags.Context = 4096,
    parallel: flags.Parallel = 1,
    part: flags.Part = 0,
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
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write where the time went, for Perfetto.")
    ] = None,
    place: flags.Place = "",
    goal: flags.GoalOption = "decode",
    as_json: flags.Json = False,
) -> None:
    """Give one reply. With --ring this is rank 0; the other machines run `ropeway stage` with the same flags."""
    with flags.people() as interruption:
        params = SamplingParams(temperature, top_k, top_p, min_p, secrets.randbits(64) if seed is None else seed)
        if temperature and sampler is SamplerAt.LAST:
            raise ValueError(
                "temperature: --sampler last takes the likeliest token; leave it at 0 or use --sampler first"
            )
        options = Options(
            model,
            stages,
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
        plan = None
        drafts = DraftOptions.parse(draft, batch=draft_batch)
        if place:
            options, plan = place_options(options, place, goal, ring.split(",") if ring else (), drafts)
        traced = TraceFile(trace)
        with (
            open_rank0(options, interruption, ring, key, listen) as rank0,
            open_drafting(drafts, rank0.placement, rank0.stage.engine) as drafting,
        ):
            _reply(rank0, drafting, prompt, max_tokens, params, raw, as_json, traced, plan)


def _reply(
    rank0: Rank0,
    drafting: Drafting | None,
    prompt: str,
    max_tokens: int,
    params: SamplingParams,
    raw: bool,
    as_json: bool,
    trace: TraceFile,
    plan: Planned | None = None,
) -> None:
    layout = rank0.placement.layout
    speech = Speech(rank0.placement.path)
    sequence = Sequence(
        0, tuple(speech.prompt(prompt, raw=raw)), max_tokens, params, stop_ids=speech.vocabulary.end_tokens
    )
    loop = rank0.loop(
        PlainChooser(),
        part=part_size(rank0, len(sequence.prompt)),
        drafting=drafting,
        on_round=lambda _scheduled, _work: trace.launched(loop),
    )
    reply = Reply()
    try:
        print_pieces(stream_reply(loop, speech, sequence, layout.world, reply), as_json)
    except (RingEnded, EngineError, KeyboardInterrupt) as error:
        if as_json:
            typer.echo(json.dumps({**_json(rank0, sequence, reply, drafting), "error": str(error)}))
        raise
    finally:
        trace.write(rank0, loop)
    prediction = Prediction() if plan is None else Prediction(plan.problem, plan.price)
    prediction.take(tuple(loop.records), layout, len(sequence.prompt) + len(reply.token_ids))
    shown = prediction.show()
    if as_json:
        typer.echo(json.dumps({**_json(rank0, sequence, reply, drafting), "prediction": shown}))
    elif plan is not None and "predicted_ms" in shown:
        why = f": {shown['cause']}" if shown["cause"] else ""
        typer.echo(f"{shown['measured_ms']} ms a token, {shown['predicted_ms']} predicted{why}", err=True)


def _json(rank0: Rank0, sequence: Sequence, reply: Reply, drafting: Drafting | None) -> dict[str, object]:
    """The reply; where it was cut off, as far as it got, with an empty `finish`."""
    return {
        "text": reply.text,
        "token_ids": reply.token_ids,
        "finish": reply.finish,
        "prompt_tokens": len(sequence.prompt),
        "prompt_ms": reply.prompt_ms,
        "tokens_per_s": reply.tokens_per_s,
        "ms_per_token": reply.ms_per_token,
        "wire_ms_per_token": reply.wire_ms_per_token,
        "drafting": None if drafting is None else asdict(drafting.figures),
        "stages": stages_json(rank0),
    }
