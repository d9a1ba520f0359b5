"""`ropeway check MODEL`: a placement against the whole model in one process, step by step; certificates of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ropeway.checkpoints.checkpoint import locate_checkpoint
from ropeway.cli import flags
from ropeway.cli.session import open_rank0, stages_json
from ropeway.launch.drafting import DraftOptions, open_drafting
from ropeway.launch.keys import read_key
from ropeway.launch.placement import CHUNK, Options
from ropeway.launch.rank0 import Rank0
from ropeway.launch.signals import Interruption
from ropeway.types import SamplerAt
from ropeway.verify.certificate import Json, read_certificate, write_certificate
from ropeway.verify.evidence import (
    ANOTHER_MODEL,
    differences,
    figures,
    is_model,
    rerun_limits,
    rerun_options,
    rerun_reference,
    rerun_work,
)
from ropeway.verify.examine import Examined, examine, make_prompts, replies
from ropeway.verify.limits import parse_limits
from ropeway.verify.reference import check_reference, reference_of
from ropeway.verify.repeat import Work

EveryRow = Annotated[
    bool, typer.Option("--every-row", help="Compare each position of the prompts too, not the replies alone.")
]
Runs = Annotated[int, typer.Option("--runs", min=1, help="Run it so often on the ring; all must give the same bits.")]
ReferenceEngine = Annotated[
    str, typer.Option("--reference", metavar="NAME", help="The engine of the whole model; unless given, the stages'.")
]
ReferenceDtype = Annotated[str, typer.Option("--reference-dtype", metavar="f32|bf16|f16")]
ReferenceDevice = Annotated[str, typer.Option("--reference-device", metavar="DEVICE")]
LimitsText = Annotated[
    str,
    typer.Option(
        "--limits",
        metavar="NAME=NUMBER,...",
        help="kl_mean, kl_p99, kl_max, max_abs_diff at most; top1, top5 at least. Where bits are promised, they count.",
    ),
]
Certificate = Annotated[Path | None, typer.Option("--certificate", metavar="FILE", help="Write a signed certificate.")]
CertificateKey = Annotated[
    Path | None,
    typer.Option("--certificate-key", metavar="FILE", help="The key file that signs it (ropeway key new FILE)."),
]
Verify = Annotated[
    Path | None,
    typer.Option("--verify", metavar="FILE", help="Run what a certificate says again, on this machine, and compare."),
]


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
    every_row: EveryRow = False,
    runs: Runs = 1,
    reference: ReferenceEngine = "",
    reference_dtype: ReferenceDtype = "",
    reference_device: ReferenceDevice = "",
    limits: LimitsText = "",
    certificate: Certificate = None,
    certificate_key: CertificateKey = None,
    verify: Verify = None,
    ring: flags.RingOption = None,
    key: flags.Key = None,
    listen: flags.Listen = None,
    as_json: flags.Json = False,
) -> None:
    """Decode on the ring and on the whole model, and compare every step's logits.

    Exit status 1 where a placement that promises the same bits does not keep them, where a limit is broken, and where
    a certificate does not hold.
    """
    with flags.people() as interruption:
        door = _Door(interruption, ring, key, listen)
        if verify is not None:
            _verify(model, verify, _key(certificate_key, key), worker_cmd, door, as_json)
            return
        if prompt_tokens + steps > context:
            raise ValueError(f"context: {context} does not hold {prompt_tokens} prompt tokens and {steps} steps")
        if every_row and sampler is SamplerAt.LAST:
            raise ValueError("every-row: --sampler last sends tokens back and no logits; use --sampler first")
        signing = _key(certificate_key, key) if certificate is not None else b""
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
            verify_weights or certificate is not None,
            flags.parse_engines(engine, engines),
            dtype,
            device,
            invariant,
            worker_cmd,
        )
        drafts = DraftOptions.parse(draft, batch=draft_batch)
        if certificate is not None and draft != "none":
            raise ValueError("certificate: it is for a run without drafts; leave --draft at none")
        judged = parse_limits(limits)
        check_reference(reference, locate_checkpoint(model))
        with (
            open_rank0(options, interruption, ring, key, listen) as rank0,
            open_drafting(drafts, rank0.placement, rank0.stage.engine) as drafting,
        ):
            work = Work(make_prompts(rank0.placement, streams, prompt_tokens), steps, groups, 0, every_row)
            held = reference_of(rank0.placement, reference, reference_dtype, reference_device)
            examined = examine(rank0, work, held, judged, runs, drafting)
            name = None if certificate is None else write_certificate(certificate, examined.body, signing)
            _print(rank0, examined, name, as_json)
        if examined.broken:
            raise typer.Exit(flags.EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class _Door:
    """How the ring is reached."""

    interruption: Interruption
    ring: str | None
    key: Path | None
    listen: str | None


def _key(certificate_key: Path | None, key: Path | None) -> bytes:
    """The key that signs: the certificate's own, else the ring's. Raises ValueError."""
    path = certificate_key or key
    if path is None:
        raise ValueError("certificate-key: a certificate needs --certificate-key FILE (ropeway key new FILE makes one)")
    return read_key(path)


def _verify(model: str, path: Path, key: bytes, worker_cmd: str, door: _Door, as_json: bool) -> None:
    """Run a certificate's work again and compare. Raises typer.Exit where it is not as it says."""
    then = read_certificate(path, key)
    streams, tokens, work = rerun_work(then)
    options = rerun_options(then, model, worker_cmd)
    if not is_model(then, locate_checkpoint(model)):
        _say_verified([ANOTHER_MODEL], [], [], None, as_json)
        return
    with open_rank0(options, door.interruption, door.ring, door.key, door.listen) as rank0:
        prompts = make_prompts(rank0.placement, streams, tokens)
        work = Work(prompts, work.steps, work.groups, work.part, work.every_row)
        examined = examine(rank0, work, rerun_reference(then), rerun_limits(then))
    _say_verified(*differences(then, examined.body), examined.broken, examined.body["figures"], as_json)


def _say_verified(failed: list[str], reasons: list[str], broken: Sequence[str], figures: Json, as_json: bool) -> None:
    """Raises typer.Exit where it is not as the certificate says, or where a limit is broken now as it was then."""
    if as_json:
        value: dict[str, Json] = {
            "verified": not failed,
            "failed": [*failed],
            "differs": [*reasons],
            "broken": [*broken],
        }
        typer.echo(json.dumps({**value, "figures": figures}))
    else:
        if not failed:
            typer.echo("the certificate holds: the same model, placement, tokens, logits and figures")
        for line in failed:
            typer.echo(f"not as the certificate says: {line}")
        for line in reasons:
            typer.echo(f"other than when it was made: {line}")
        for line in broken:
            typer.echo(f"over its limit: {line}")
    if failed or broken:
        raise typer.Exit(flags.EXIT_FAILED)


def _print(rank0: Rank0, examined: Examined, certificate: str | None, as_json: bool) -> None:
    outcome, c = examined.outcome, examined.outcome.comparison
    if as_json:
        value: dict[str, Json] = {
            **figures(c),
            "promises_bits": examined.promised,
            "runs": outcome.runs,
            "same_bits": outcome.same_bits,
            "broken": list(examined.broken),
            "reference": examined.body["reference"],
            "replies": [*replies(rank0.placement, outcome)],
            "logits_digest": outcome.logits,
            "certificate": certificate,
        }
        typer.echo(json.dumps({**value, "stages": stages_json(rank0)}))
        return
    ranges = ", ".join(f"{first}..{end}" for first, end in rank0.placement.layout.ranges)
    typer.echo(f"layers {ranges} against one process: {c.equal_steps} of {c.steps} steps equal, bit for bit")
    if not c.divergences:
        typer.echo("the last rank chose the tokens, so tokens were compared, not logits")
    elif c.equal_steps < c.steps:
        typer.echo(f"KL divergence: mean {c.kl_mean:.3g}, 99th percentile {c.kl_p99:.3g}, largest {c.kl_max:.3g} nats")
        typer.echo(f"largest logit difference {c.max_abs_diff:.3g}; five likeliest shared {c.top5:.1%}")
    if c.equal_steps < c.steps:
        parting = "no reply parts" if c.first_parting is None else f"the first reply parts at token {c.first_parting}"
        typer.echo(f"the likeliest token agrees at {c.top1:.1%} of the steps; {parting}")
    if outcome.runs > 1:
        typer.echo(f"{outcome.runs} runs: {'the same bits' if outcome.same_bits else 'not the same bits'}")
    if certificate is not None:
        typer.echo(f"certificate {certificate}")
    for line in examined.broken:
        typer.echo(f"over its limit: {line}")
