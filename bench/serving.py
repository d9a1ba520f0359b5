"""What serving many costs one: 8 streams against one, and a running stream while a long prompt enters.

    python bench/serving.py [--model demo] [--stages 2] [--cuts place] [--streams 8] [--prompt-tokens 2000] [--part 128]
                            [--json]

Through the scheduler and the loop that `ropeway serve` runs, on a ring of processes here, one core and one thread a
stage. Aims: 8 streams give at least 2.5 times one stream's tokens a second; the time between two tokens of a running
stream grows at most by the cost of one part while a prompt of 2,000 tokens enters.
"""

from __future__ import annotations

import argparse
import statistics
import time

from harness import CUTS_HELP, Window, cut, pin_ring, window
from results import Figure, Result
from ropeway.cli.session import place_local
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import open_local
from ropeway.serving.loop import Loop
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser

TOKENS = 48


def prompt(seed: int, tokens: int) -> tuple[int, ...]:
    """Token ids that no other seed shares."""
    return tuple(5 + (7 * i + 131 * seed) % 1000 for i in range(tokens))


def rate(loop: Loop, numbers: range) -> float:
    """Tokens a second of streams that decode together, from the first token of the last of them on."""
    sequences = [Sequence(number, prompt(number, 24), TOKENS) for number in numbers]
    for sequence in sequences:
        loop.scheduler.add(sequence)
    while not all(sequence.produced for sequence in sequences):
        loop.step()
    before = sum(len(sequence.produced) for sequence in sequences)
    started = time.perf_counter()
    while all(sequence.finish is None for sequence in sequences):
        loop.step()
    seconds = time.perf_counter() - started
    produced = sum(len(sequence.produced) for sequence in sequences) - before
    while not loop.scheduler.idle:
        loop.step()
    return produced / seconds


def gaps(loop: Loop, number: int, entering: int) -> tuple[list[float], list[float]]:
    """Ms between a stream's tokens, alone and while a prompt of `entering` tokens enters."""
    running = Sequence(number, prompt(number, 24), 4000)
    other = Sequence(number + 1, prompt(number + 1, entering), 1)
    loop.scheduler.add(running)
    alone: list[float] = []
    beside: list[float] = []
    last = 0.0
    while not other.produced:
        if len(alone) == 30 and not beside:
            loop.scheduler.add(other)
        for committed in loop.step():
            if committed.sequence is running:
                now = time.perf_counter()
                if last:
                    (alone if len(alone) < 30 else beside).append((now - last) * 1e3)
                last = now
    loop.scheduler.cancel(number)
    while not loop.scheduler.idle:
        loop.step()
    return alone, beside


def part_ms(loop: Loop, number: int, part: int) -> float:
    """Ms for one part of a prompt through the whole ring, alone."""
    sequence = Sequence(number, prompt(number, part), 1)
    loop.scheduler.add(sequence)
    started = time.perf_counter()
    while not sequence.produced:
        loop.step()
    seconds = time.perf_counter() - started
    while not loop.scheduler.idle:
        loop.step()
    return seconds * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--cuts", default="", help=CUTS_HELP)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=2000)
    parser.add_argument("--part", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    options = Options(args.model, args.stages, threads=1, context=4096, parallel=args.streams)
    options = cut(options, args.cuts, "throughput")
    placement = place_local(options, None, None)
    one: list[float] = []
    many: list[float] = []
    windows: list[Window] = []
    with open_local(placement) as rank0:
        pids = pin_ring()
        loop = rank0.loop(PlainChooser(), groups=args.stages, part=args.part)
        number = 0
        for _ in range(args.repeats):
            with window(pids) as seen:
                one.append(rate(loop, range(number, number + 1)))
                many.append(rate(loop, range(number + 1, number + 1 + args.streams)))
            number += 1 + args.streams
            windows.append(seen)
        with window(pids) as seen:
            part = statistics.median(part_ms(loop, number + k, args.part) for k in range(3))
            alone, beside = gaps(loop, number + 3, args.prompt_tokens)
        windows.append(seen)
    shares = [w.other_share for w in windows if w.other_share is not None]
    ratios = [b / a for a, b in zip(one, many, strict=True)]
    waits = statistics.median(alone) + part
    figures = (
        Figure.of("1 stream", "tokens/s", one),
        Figure.of(f"{args.streams} streams", "tokens/s", many),
        Figure.of(f"{args.streams} streams / 1", "times", ratios, limit=2.5),
        Figure.of("between two tokens", "ms", alone, more=False),
        Figure.of(f"between two while {args.prompt_tokens} enter", "ms", beside, ideal=waits, limit=waits, more=False),
        Figure.of(f"one part of {args.part} rows, through the ring", "ms", [part], more=False),
    )
    notes = (
        f"others had at most {max(shares, default=0):.0%} of the machine",
        f"the longest time between two tokens while {args.prompt_tokens} entered: {max(beside):.0f} ms",
    )
    setting = f"{args.model}, {args.stages} stages, a core each"
    Result("serving", setting, figures, notes).tell(args, {"gap_beside_max_ms": max(beside)})


if __name__ == "__main__":
    main()
