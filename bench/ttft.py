"""Time to the first token of a long prompt: parts overlapping over the stages against one process on one core.

    python bench/ttft.py [--model demo] [--stages 2] [--tokens 4096] [--part 512] [--repeats 3] [--json]

One core and one thread a stage, and one for the whole model, which reads the prompt in the same parts. In turn, in one
run. The ideal for n equal parts on s stages is n * s / (n + s - 1). Aim on two stages: 1.75, limit 1.6.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

from harness import Pairs, machine, pin_ring, spread, window
from ropeway.cli.session import place_local
from ropeway.engines.base import Span
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import open_local
from ropeway.serving.loop import Loop
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser


def split_once(loop: Loop, number: int, prompt: tuple[int, ...]) -> float:
    """Seconds until the first token of a prompt that has a fresh slot."""
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--part", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    options = Options(args.model, args.stages, threads=1, chunk=args.part, context=args.tokens + 64)
    placement = place_local(options, None, None)
    prompt = tuple(5 + 7 * i % 1000 for i in range(args.tokens))
    pairs = Pairs()
    with open_local(placement) as rank0:
        pids = pin_ring()
        loop = rank0.loop(PlainChooser())
        whole = WholeModel(placement.whole_config())
        split_once(loop, 0, prompt[: args.part])
        for repeat in range(args.repeats):
            with window(pids) as split_window:
                split = split_once(loop, repeat + 1, prompt)
            with window(pids) as whole_window:
                alone = whole_once(whole, prompt, args.part)
            pairs.add(alone, split, whole_window, split_window)
        whole.close()
    parts = -(-args.tokens // args.part)
    ideal = parts * args.stages / (parts + args.stages - 1)
    value = {
        "machine": machine(),
        "model": args.model,
        "stages": args.stages,
        "tokens": args.tokens,
        "parts": parts,
        "pairs": len(pairs.a),
        "thrown": pairs.thrown,
        "whole_s": statistics.median(pairs.a) if pairs.a else None,
        "split_s": statistics.median(pairs.b) if pairs.b else None,
        "speedup": statistics.median(pairs.ratios) if pairs.a else None,
        "ideal": ideal,
    }
    if args.json:
        print(json.dumps(value))
        return
    print(f"{machine()}; {args.model}, {args.tokens} prompt tokens in {parts} parts, one core a stage")
    print(f"repeats: {len(pairs.a)}, thrown away because others were busy: {pairs.thrown}")
    print(f"whole s          {spread(pairs.a)}")
    print(f"{args.stages} stages s       {spread(pairs.b)}")
    print(f"whole / split    {spread(pairs.ratios)}   (ideal {ideal:.3f})")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
