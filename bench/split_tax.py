"""What a split costs in decode: ms a step of two stages against one process, the same threads, in turn in one run.

    python bench/split_tax.py [--model demo] [--cuts 15] [--depth 256] [--blocks 40] [--json]

One thread each; rank 0 and the whole model on one core, rank 1 on the other. A block is 16 steps of one, then of the
other; a pair of blocks counts only where other processes left the machine alone. Aim: at most 1.02, limit 1.05.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from harness import Pairs, machine, pin_ring, spread, window
from ropeway.cli.session import place_local
from ropeway.engines.base import Span
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import Rank0, open_local
from ropeway.serving.loop import Loop
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser

STEPS = 16


def measure(rank0: Rank0, depth: int, blocks: int) -> tuple[Pairs, Loop]:
    """Blocks of decode steps of the split and of the whole model, in turn, at about `depth` positions."""
    pids = pin_ring()
    prompt = tuple(5 + 7 * i % 1000 for i in range(depth))
    loop = rank0.loop(PlainChooser())
    loop.scheduler.add(Sequence(0, prompt, (blocks + 2) * STEPS))
    whole = WholeModel(rank0.placement.whole_config())
    chunk = rank0.placement.options.chunk
    for first in range(0, depth, chunk):
        rows = min(chunk, depth - first)
        whole.forward([Span(0, first, rows)], prompt[first : first + rows], [rows - 1])
    loop.step()
    at, token = depth, 5
    pairs = Pairs()
    for block in range(-1, blocks):
        with window(pids) as split_window:
            for _ in range(STEPS):
                loop.step()
        with window(pids) as whole_window:
            for _ in range(STEPS):
                token = int(whole.forward([Span(0, at, 1)], [token], [0])[0].argmax())
                at += 1
        if block >= 0:
            a, b = split_window.seconds / STEPS * 1e3, whole_window.seconds / STEPS * 1e3
            pairs.add(a, b, split_window, whole_window)
    time.sleep(0.05)
    loop.collect()
    whole.close()
    return pairs, loop


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--cuts", default="15")
    parser.add_argument("--depth", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cuts = tuple(int(cut) for cut in args.cuts.split(","))
    context = args.depth + (args.blocks + 3) * STEPS
    placement = place_local(Options(args.model, cuts=cuts, threads=1, context=context), None, None)
    with open_local(placement) as rank0:
        world = placement.layout.world
        pairs, loop = measure(rank0, args.depth, args.blocks)
    rounds = [r for r in loop.records if r.rows == 1]
    wires = [wire / 1e6 for r in rounds if (wire := r.wire_ns(world)) is not None]
    value = {
        "machine": machine(),
        "model": args.model,
        "cuts": list(cuts),
        "depth": args.depth,
        "pairs": len(pairs.a),
        "thrown": pairs.thrown,
        "split_ms": statistics.median(pairs.a) if pairs.a else None,
        "whole_ms": statistics.median(pairs.b) if pairs.b else None,
        "ratio": statistics.median(pairs.ratios) if pairs.a else None,
        "wire_ms": statistics.median(wires) if wires else None,
    }
    if args.json:
        print(json.dumps(value))
        return
    print(f"{machine()}; {args.model}, cuts {args.cuts}, {args.depth} positions deep, one thread each")
    print(f"pairs of {STEPS} steps: {len(pairs.a)}, thrown away because others were busy: {pairs.thrown}")
    print(f"split ms a step  {spread(pairs.a)}")
    print(f"whole ms a step  {spread(pairs.b)}")
    print(f"split / whole    {spread(pairs.ratios)}   (aim 1.02, limit 1.05)")
    print(f"wire ms a step   {spread(wires)}")
    print(
        f"own ms           {spread([r.own_ns / 1e6 for r in rounds])}, head {spread([r.head_ns / 1e6 for r in rounds])}"
    )


if __name__ == "__main__":
    main()
