"""Four stages of a tiny model: a prompt's makespan, its share of the ideal, and the cause of what is missing.

    python bench/four_stages.py [--stages 4] [--parts 8] [--part 128] [--width 512] [--repeats 7] [--json]

A random model made here, a process and a thread a stage, on a core each as far as there are cores. In turn, in one run:
the prompt part by part, each stage computing while all others rest, and the prompt as rings read it, side by side. The
times alone give the ideal: each part behind the one before it and behind the same part on the stage before
(n + s - 1 stage-times where all are equal). What the forwards take longer side by side is the cores' doing, which
stages share where there are fewer; what is missing beyond that is the wire, waking and planning.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from harness import pin_ring, window
from results import Figure, Result
from ropeway.cli.session import place_local
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import Rank0, open_local
from ropeway.serving.loop import Loop, RoundRecord
from ropeway.serving.scheduler import Scheduler
from ropeway.serving.sequence import Sequence as Prompt
from ropeway.serving.speech import PlainChooser

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from tiny_gguf import TinyModel, write_tiny

LAYERS_A_STAGE = 2
Costs = list[list[float]]
"""By stage, milliseconds of each part."""


def makespan_ms(costs: Costs) -> float:
    """Until the last part is out of the last stage, each stage doing one part after the other."""
    ready = [0.0] * len(costs[0])
    for stage in costs:
        free = 0.0
        for part, cost in enumerate(stage):
            free = ready[part] = max(free, ready[part]) + cost
    return ready[-1]


@dataclass(frozen=True)
class Read:
    """One reading of the prompt: its makespan, and what every stage's parts took."""

    ms: float
    costs: Costs


def read(loop: Loop, number: int, prompt: Sequence[int], stages: int, *, apart: bool) -> Read:
    """Read a prompt; `apart`, every round is waited for on every stage."""
    loop.records.clear()
    one = Prompt(number, tuple(prompt), 1)
    loop.scheduler.add(one)
    while not one.produced:
        loop.step()
        if apart:
            settle(loop, stages)
    settle(loop, stages)
    rounds = [record for record in loop.records if record.rows]
    while not loop.scheduler.idle:
        loop.step()
    costs = [[each for record in rounds for each in _shared_out(record, rank)] for rank in range(stages)]
    return Read((rounds[-1].back_ns - rounds[0].launched_ns) / 1e6, costs)


def _shared_out(record: RoundRecord, rank: int) -> list[float]:
    """A round's forward on one stage, evenly over its parts."""
    took = record.own_ns if rank == 0 else record.dones[rank].forward_ns
    return [took / record.parts / 1e6] * record.parts


def settle(loop: Loop, stages: int) -> None:
    """Wait until every stage has reported all of its rounds."""
    deadline = time.monotonic() + 20.0
    while any(len(record.dones) < stages - 1 for record in loop.records):
        assert time.monotonic() < deadline, "a stage does not report"
        loop.collect()
        time.sleep(0.0005)


def part_by_part(rank0: Rank0, part: int) -> Loop:
    """A loop whose rounds have one part each."""
    limits = rank0.limits
    scheduler = Scheduler(1, part, part + 1, limits.context, limits.kv_rows, grain=rank0.grain)
    return Loop(rank0.stage, rank0.ring, scheduler, PlainChooser())


@dataclass
class Found:
    """Pairs of readings: alone, and side by side."""

    alone: list[Read]
    together: list[Read]
    thrown: int = 0


def measure(rank0: Rank0, prompt: Sequence[int], part: int, stages: int, repeats: int) -> Found:
    """The prompt in both ways, in turn; a first pair is not counted."""
    pids = pin_ring()
    numbers: Iterator[int] = count()
    apart, ring = part_by_part(rank0, part), rank0.loop(PlainChooser(), part=part)
    found = Found([], [])
    for repeat in range(-1, repeats):
        with window(pids) as watched:
            alone = read(apart, next(numbers), prompt, stages, apart=True)
            together = read(ring, next(numbers), prompt, stages, apart=False)
        if repeat >= 0 and watched.quiet:
            found.alone.append(alone)
            found.together.append(together)
        elif repeat >= 0:
            found.thrown += 1
    return found


def figures_of(found: Found, stages: int, cores: int) -> tuple[Figure, ...]:
    """What it comes to."""
    measured = [one.ms for one in found.together]
    ideal = [makespan_ms(one.costs) for one in found.alone]
    work = [sum(map(sum, one.costs)) for one in found.alone]
    bound = [max(best, all_ / min(cores, stages)) for best, all_ in zip(ideal, work, strict=True)]
    forwards = [makespan_ms(one.costs) for one in found.together]
    held_up = [100 * (f - i) / m for f, i, m in zip(forwards, ideal, measured, strict=True)]
    wire = [100 * (m - f) / m for m, f in zip(measured, forwards, strict=True)]
    even = [sum(all_) / len(all_) for all_ in ([sum(stage) for stage in one.costs] for one in found.alone)]
    uneven = [max(map(sum, one.costs)) / mean for one, mean in zip(found.alone, even, strict=True)]
    middle = statistics.median(ideal) if ideal else None
    return (
        Figure.of("one stage after the other", "ms", work, more=False),
        Figure.of("side by side", "ms", measured, ideal=middle, more=False),
        Figure.of(
            "ideal / measured, a core a stage", "", [i / m for i, m in zip(ideal, measured, strict=True)], ideal=1.0
        ),
        Figure.of(
            "ideal / measured, on these cores", "", [b / m for b, m in zip(bound, measured, strict=True)], ideal=1.0
        ),
        Figure.of("missing: forwards take longer side by side", "%", held_up, ideal=0.0, more=False),
        Figure.of("missing: wire, waking, planning", "%", wire, ideal=0.0, more=False),
        Figure.of("the slowest stage / the mean one", "times", uneven, ideal=1.0, more=False),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--part", type=int, default=128)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows, layers = args.parts * args.part, LAYERS_A_STAGE * args.stages
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        model = TinyModel(layers=layers, width=args.width, feed_forward=3 * args.width)
        path = write_tiny(Path(folder) / "tiny.gguf", model)
        options = Options(str(path), args.stages, threads=1, chunk=args.part, context=rows + 64)
        placement = place_local(options, None, None)
        prompt = [5 + 7 * i % 250 for i in range(rows)]
        with open_local(placement) as rank0:
            found = measure(rank0, prompt, args.part, args.stages, args.repeats)
    notes = [f"{len(found.alone)} pairs counted, {found.thrown} thrown away because others were busy"]
    if cores < args.stages:
        notes.append(
            f"{args.stages} stages share {cores} cores: they cannot all compute at once, whatever the ring does"
        )
    setting = f"a random model of {layers} layers, {args.width} wide, {args.parts} parts of {args.part} rows"
    figures = figures_of(found, args.stages, cores)
    Result("four_stages", f"{setting}, {args.stages} stages on {cores} cores", figures, tuple(notes)).tell(args)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
