"""The flags that commands share, and how what goes wrong becomes a line for people and an exit status.

Exit statuses: 0 done; 1 failed, with the reason on standard error; 2 wrong usage; 70 the ring ended in failure;
130 interrupted, 143 terminated.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import EngineError
from ropeway.launch.rank import EXIT_FAILED as EXIT_FAILED
from ropeway.launch.rank import EXIT_RING as EXIT_RING
from ropeway.launch.signals import Interrupted, Interruption, interruptible
from ropeway.placement.budget import Infeasible
from ropeway.transport import RingEnded, RingLost
from ropeway.types import SamplerAt

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A GGUF file, a directory with safetensors, hf:ORG/NAME[:FILE], a URL, or: demo"
    ),
]
Stages = Annotated[int, typer.Option("--stages", min=1, help="How many stages of nearly equal size.")]
Cuts = Annotated[
    str | None, typer.Option("--cuts", metavar="10,20", help="Where to cut instead: first layer of each later stage.")
]
Sampler = Annotated[
    SamplerAt, typer.Option("--sampler", help="Who has the head: rank 0 (first) or the last rank (last; greedy only).")
]
Threads = Annotated[
    int, typer.Option("--threads", min=0, help="CPU threads a stage; 0 shares the cores out among the stages here.")
]
Context = Annotated[int, typer.Option("--context", min=1, help="Most positions (prompt and reply) of a stream.")]
Parallel = Annotated[int, typer.Option("--parallel", min=1, max=256, help="Most streams at once.")]
Part = Annotated[
    int, typer.Option("--part", min=0, help="Rows of a prompt that cross a boundary together; 0: measured.")
]
Draft = Annotated[
    str,
    typer.Option(
        "--draft",
        metavar="none|ngram|mtp|model:PATH",
        help="Guess tokens, verify several a round: what followed before, the model's own head, or a small GGUF.",
    ),
]
DraftBatch = Annotated[
    bool,
    typer.Option("--draft-batch", help="Verify guesses in one batch also where a near-tie may then fall otherwise."),
]
GpuLayers = Annotated[int, typer.Option("--gpu-layers", min=-1, help="Layers to offload where the build can; -1: all.")]
Engine = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="What computes every stage; unless given, what suits the model.")
]
Engines = Annotated[
    str, typer.Option("--engines", metavar="NAME,...", help="The same, one engine a stage: llamacpp,torch")
]
Dtype = Annotated[
    str, typer.Option("--dtype", metavar="f32|bf16|f16", help="What torch computes in; unless given, the model's own.")
]
Device = Annotated[str, typer.Option("--device", help="Where torch computes: cpu, cuda:0, mps; the best unless given.")]
Invariant = Annotated[
    bool,
    typer.Option("--invariant", help="torch on a CPU: bits that depend on a stream alone, not on its company."),
]
WorkerCmd = Annotated[
    str,
    typer.Option(
        "--worker-cmd", metavar="COMMAND", help="The program behind --engine worker, with its arguments (no shell)."
    ),
]
Place = Annotated[
    str,
    typer.Option(
        "--place", metavar="FILE|local", help="Choose the cuts: for the nodes of a file, or for this machine's stages."
    ),
]
GoalOption = Annotated[
    str,
    typer.Option(
        "--goal", metavar="decode|prompt|throughput", help="What is to be fast, or weights: prompt=1,decode=200"
    ),
]
VerifyWeights = Annotated[
    bool,
    typer.Option("--verify-weights", help="Put every tensor's digest into the fingerprint (reads the whole file)."),
]
RingOption = Annotated[
    str | None,
    typer.Option(
        "--ring", metavar="HOST:PORT,...", help="Every rank's address in order, for a ring over several machines."
    ),
]
Key = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The ring's key file (ropeway key new FILE).")]
Listen = Annotated[
    str | None,
    typer.Option("--listen", metavar="HOST:PORT", help="Listen here instead of at this rank's address in --ring."),
]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="This node's directory; ROPEWAY_HOME, or in the user's state."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def parse_cuts(text: str | None) -> tuple[int, ...] | None:
    """'10,20' as (10, 20). Raises ValueError."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"cuts: {text!r} is not a list of layers such as 10,20") from None


def parse_engines(engine: str, engines: str) -> tuple[str, ...]:
    """What --engine and --engines name. Raises ValueError where both do."""
    if engine and engines:
        raise ValueError("engine: --engine is for all stages, --engines for one each; use one of them")
    return tuple(name.strip() for name in (engine or engines).split(",") if name.strip())


def fail(text: str, status: int) -> typer.Exit:
    """Say what went wrong on standard error; the exit to raise."""
    sys.stdout.flush()
    sys.stderr.write(f"ropeway: {text}\n")
    return typer.Exit(status)


def write_text(path: Path, text: str, mode: str = "w") -> None:
    """Write a file that a person has asked for. Raises ValueError that names it."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None


@contextmanager
def people(*, guarded: bool = True) -> Iterator[Interruption]:
    """Turn the errors that a person can do something about, and interruptions, into a line and an exit status.

    `guarded` as for `interruptible`.
    """
    logging.basicConfig(level=logging.WARNING, format="ropeway: %(message)s")
    try:
        with interruptible(guarded=guarded) as interruption:
            try:
                yield interruption
            except RingEnded:
                if interruption.cause is not None:
                    raise interruption.cause from None
                raise
    except ValueError as error:
        raise fail(str(error), EXIT_USAGE) from error
    except (CheckpointError, EngineError, Infeasible) as error:
        raise fail(str(error), EXIT_FAILED) from error
    except RingLost as error:
        raise fail(str(error), EXIT_RING) from error
    except KeyboardInterrupt as error:
        status = error.status if isinstance(error, Interrupted) else EXIT_INTERRUPTED
        raise fail(str(error) or "interrupted", status) from None
