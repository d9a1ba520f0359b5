"""Time to the first token of a long prompt: parts overlapping over the stages against one process on one core.

    python bench/ttft.py [--model demo] [--stages 2] [--cuts place] [--tokens 4096] [--part 512] [--repeats 3]
                         [--link 1gbit] [--json]

One core and one thread a stage, and one for the whole model, which reads the prompt in the same parts. In turn, in one
run. The ideal for n equal parts on s stages is n * s / (n + s - 1). Aim on two stages: 1.75, limit 1.6. With `--link`
all of it runs on a loopback of that width (link.py).
"""

from __future__ import annotations

import argparse
import os
import time

import link
from harness import CUTS_HELP, Pairs, cut, pin_ring, window
from results import Figure, Result
from ropeway.cli.session import place_local
from ropeway.engines.base import Span
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import open_local
from ropeway.serving.loop import Loop
from ropeway.serving.overlap import Overlap, overlap
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser


def split_once(loop: Loop, number: int, prompt: tuple[int, ...]) -> float:
    """Seconds until the first token of a prompt that has a fresh slot."""
    loop.records.clear()
    started = time.perf_counter()
    sequence = Sequence(number, prompt, 1)
    loop.scheduler.add(sequence)
    while not sequence.produced:
        loop.step()
    seconds = time.perf_counter() - started
    while not loop.scheduler.idle:
        loop.step()
    return seconds


def whole_once(whole: WholeModel, prompt: tuple[int, ...], part: int) -> float:
    """Seconds until the first token in one process."""
    whole.release(0)
    started = time.perf_counter()
    for first in range(0, len(prompt), part):
        tokens = prompt[first : first + part]
        last = first + part >= len(prompt)
        logits = whole.forward([Span(0, first, len(tokens))], tokens, [len(tokens) - 1] if last else [])
    int(logits[0].argmax())
    return time.perf_counter() - started


def overlap_of(loop: Loop, stages: int) -> Overlap | None:
    """How well the stages worked side by side in the last prompt."""
    deadline = time.monotonic() + 1.0
    while any(len(record.dones) < stages - 1 for record in loop.records) and time.monotonic() < deadline:
        loop.collect()
        time.sleep(0.002)
    return overlap(loop.records, stages, 0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--cuts", default="", help=CUTS_HELP)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--part", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--link", metavar="RATE", help="as 1gbit or 10gbit")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    link.inside(args.link)
    options = Options(args.model, args.stages, threads=1, chunk=args.part, context=args.tokens + 64)
    placement = place_local(cut(options, args.cuts, "prompt"), None, None)
    prompt = tuple(5 + 7 * i % 1000 for i in range(args.tokens))
    pairs, overlaps = Pairs(), []
    with open_local(placement) as rank0:
        pids = pin_ring()
        loop = rank0.loop(PlainChooser())
        whole = WholeModel(placement.whole_config())
        split_once(loop, 0, prompt[: args.part])
        for repeat in range(args.repeats):
            halves = {}
            for which in ("split", "whole") if repeat % 2 == 0 else ("whole", "split"):
                with window(pids) as halves[which]:
                    if which == "split":
                        split = split_once(loop, repeat + 1, prompt)
                    else:
                        alone = whole_once(whole, prompt, args.part)
                if which == "split" and halves[which].quiet:
                    overlaps.append(overlap_of(loop, args.stages))
            pairs.add(alone, split, *halves.values())
        whole.close()
    parts = -(-args.tokens // args.part)
    ideal = parts * args.stages / (parts + args.stages - 1)
    found = [one for one in overlaps if one is not None]
    two = args.stages == 2 and args.tokens >= 8 * args.part
    row_bytes = placement.layout.boundary.row_bytes()
    wire = f", {args.link} between them" if args.link else ""
    figures = (
        Figure.of("one process", "s", pairs.a, more=False),
        Figure.of(f"{args.stages} stages", "s", pairs.b, more=False),
        Figure.of(
            "times as fast", "", pairs.ratios, ideal=ideal, aim=1.75 if two else None, limit=1.6 if two else None
        ),
        Figure.of("stages at work", "", [one.at_work for one in found], ideal=ideal),
        Figure.of("of the ideal for these forwards", "", [one.efficiency for one in found], ideal=1.0),
    )
    notes = [f"{len(pairs.a)} pairs counted, {pairs.thrown} thrown away because others were busy"]
    if args.link:
        crossing_ms = args.part * row_bytes * 8 / link.bits_per_s(args.link) * 1e3
        notes.append(f"a part of {args.part} rows is {args.part * row_bytes:,} bytes: {crossing_ms:.2f} ms on the link")
    layers = ", ".join(f"{first}..{end}" for first, end in placement.layout.ranges)
    setting = f"{args.model}, {args.tokens} prompt tokens in {parts} parts, layers {layers}, a core a stage{wire}"
    Result("ttft", setting, figures, tuple(notes)).tell(args, {"parts": parts, "link": args.link})


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
