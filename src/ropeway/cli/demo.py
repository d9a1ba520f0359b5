"""`ropeway demo`: a real model over stages on this machine, its reply, and whether one process gives the same bits."""

from __future__ import annotations

import json
import shutil
from typing import Annotated

import typer

from ropeway.cli import flags
from ropeway.cli.picture import draw_ring
from ropeway.cli.reply import Reply, print_pieces, stream_reply
from ropeway.cli.session import open_rank0, stage_views, stages_json
from ropeway.launch.parts import part_size
from ropeway.launch.placement import CHUNK, Options
from ropeway.launch.rank0 import Rank0
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import Speech
from ropeway.types import SamplerAt
from ropeway.verify.repeat import Recorder, compare_with_whole


def demo(
    prompt: Annotated[str, typer.Option("--prompt", help="What to say to it.")] = "Say hello",
    stages: flags.Stages = 2,
    cuts: flags.Cuts = None,
    sampler: flags.Sampler = SamplerAt.FIRST,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest reply, in tokens.")] = 64,
    threads: flags.Threads = 0,
    context: flags.Context = 4096,
    part: flags.Part = 0,
    as_json: flags.Json = False,
) -> None:
    """Split SmolLM2-135M-Instruct over processes here, say hello, and hold the reply against one process."""
    with flags.people() as interruption:
        options = Options("demo", stages, flags.parse_cuts(cuts), sampler, context, 1, max(part, CHUNK), part, threads)
        with open_rank0(options, interruption) as rank0:
            _demo(rank0, prompt, max_tokens, as_json)


def _demo(rank0: Rank0, prompt: str, max_tokens: int, as_json: bool) -> None:
    layout = rank0.placement.layout
    speech = Speech(rank0.placement.path)
    if not as_json:
        typer.echo(f"{speech.name}: {layout.layers} layers over {layout.world} stage{'s' * (layout.world > 1)}\n")
        columns = shutil.get_terminal_size().columns
        typer.echo(draw_ring(stage_views(rank0), layout.boundary.row_bytes(), columns))
        typer.echo(f"\n> {prompt}\n")
    recorder = Recorder()
    sequence = Sequence(0, tuple(speech.prompt(prompt)), max_tokens, stop_ids=speech.vocabulary.end_tokens)
    loop = rank0.loop(recorder, part=part_size(rank0, len(sequence.prompt)), on_round=recorder.on_round)
    reply = Reply()
    print_pieces(stream_reply(loop, speech, sequence, layout.world, reply), as_json)
    comparison = compare_with_whole(rank0.placement, recorder)
    exact = comparison.steps == comparison.equal_steps == len(reply.token_ids)
    if as_json:
        typer.echo(json.dumps(_json(rank0, reply, exact)))
    else:
        typer.echo("\n" + _figures(reply, exact, rank0))
    if not exact:
        raise typer.Exit(flags.EXIT_FAILED)


def _json(rank0: Rank0, reply: Reply, exact: bool) -> dict[str, object]:
    return {
        "text": reply.text,
        "token_ids": reply.token_ids,
        "exact": exact,
        "tokens_per_s": reply.tokens_per_s,
        "ms_per_token": reply.ms_per_token,
        "wire_ms_per_token": reply.wire_ms_per_token,
        "stages": stages_json(rank0),
    }


def _figures(reply: Reply, exact: bool, rank0: Rank0) -> str:
    count = len(reply.token_ids)
    lines = [f"{count} tokens at {reply.tokens_per_s:.1f} a second"]
    if reply.ms_per_token:
        lines[0] += f": {reply.ms_per_token:.2f} ms a token"
        if reply.wire_ms_per_token is not None:
            lines[0] += f", {reply.wire_ms_per_token:.2f} ms of it for the wire"
    held = "every token" if rank0.placement.layout.sampler is SamplerAt.LAST else "every token and every logit"
    lines.append(f"held against one process: {held + ', the same bits' if exact else 'IT DIFFERS'}")
    return "\n".join(lines)
