"""Many streams: tokens a second of two stages with one and with two rounds under way, against one process on one core.

    python bench/throughput.py [--model demo] [--cuts place] [--streams 8] [--depth 128] [--blocks 12] [--json]

One core and one thread a stage, and one for the whole model, which decodes the same streams in one batch. In turn, in
one run. Aim with two groups on two stages: 1.95 times the whole, limit 1.8. Rank 0 has the head too, a fifth of what
the demo model does in decode: layers cut in halves leave rank 1 waiting, so the cut counts, and its ideal is told.
"""

from __future__ import annotations

import argparse
import statistics
import time

from harness import CUTS_HELP, Pairs, cut, pin_ring, window
from replay import least_ns
from results import Figure, Result
from ropeway.cli.session import place_local
from ropeway.engines.base import Span
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.placement import Options, Placement
from ropeway.launch.rank0 import open_local
from ropeway.serving.loop import Loop
from ropeway.serving.overlap import Overlap, overlap
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser

STEPS = 12


def decode_split(loop: Loop, streams: int) -> tuple[float, float]:
    """Decode about STEPS tokens for every stream; (tokens a second, median ms between two tokens of a stream)."""
    last: dict[int, float] = {}
    gaps: list[float] = []
    started = time.perf_counter()
    tokens = 0
    while tokens < STEPS * streams:
        for committed in loop.step():
            now = time.perf_counter()
            number = committed.sequence.id
            if number in last:
                gaps.append((now - last[number]) * 1e3)
            last[number] = now
            tokens += len(committed.tokens)
    return tokens / (time.perf_counter() - started), statistics.median(gaps)


def overlap_in(loop: Loop, stages: int, since_ns: int) -> Overlap | None:
    """How well the stages worked side by side since then."""
    until_ns = time.perf_counter_ns()
    loop.collect()
    rounds = [one for one in loop.records if one.launched_ns >= since_ns and 0 < one.landed_ns <= until_ns]
    return overlap(rounds, stages, since_ns)


def own_share(loop: Loop, stages: int, groups: int, since_ns: int) -> float | None:
    """Of the time since then, the share that the same forwards would have taken in a ring that costs nothing."""
    rounds = [
        one
        for one in loop.records
        if one.launched_ns >= since_ns and one.landed_ns and one.parts == 1 and len(one.dones) == stages - 1
    ]
    if len(rounds) <= groups:
        return None
    first = rounds[:groups]  # they had the rounds before them in their way
    least = least_ns(rounds, stages, groups) - least_ns(first, stages, groups)
    return least / (rounds[-1].landed_ns - first[-1].landed_ns)


def start(loop: Loop, streams: int, depth: int, tokens: int) -> None:
    """Put `streams` prompts through the ring."""
    for number in range(streams):
        prompt = tuple(5 + (7 * i + 13 * number) % 1000 for i in range(depth))
        loop.scheduler.add(Sequence(number, prompt, tokens))
    while loop.scheduler.waiting or any(r.rows > streams for r in list(loop.records)[-1:]):
        loop.step()


class WholeStreams:
    """The whole model decoding the same streams in one batch."""

    def __init__(self, placement: Placement, streams: int, depth: int) -> None:
        self.whole = WholeModel(placement.whole_config())
        self.streams, self.at = streams, depth
        self.tokens = [5] * streams
        chunk = placement.options.chunk
        for slot in range(streams):
            prompt = [5 + (7 * i + 13 * slot) % 1000 for i in range(depth)]
            for first in range(0, depth, chunk):
                part = prompt[first : first + chunk]
                self.whole.forward([Span(slot, first, len(part))], part, [len(part) - 1])

    def decode(self) -> float:
        """STEPS steps of every stream; tokens a second."""
        started = time.perf_counter()
        for _ in range(STEPS):
            spans = [Span(slot, self.at, 1) for slot in range(self.streams)]
            logits = self.whole.forward(spans, self.tokens, range(self.streams))
            self.tokens = [int(row.argmax()) for row in logits]
            self.at += 1
        return STEPS * self.streams / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--cuts", default="", help=CUTS_HELP)
    parser.add_argument("--stages", type=int, default=2, help="where no cuts are given")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    tokens = (args.blocks + 6) * STEPS
    context = args.depth + tokens + 64
    options = Options(args.model, args.stages, threads=1, chunk=128, context=context, parallel=args.streams)
    placement = place_local(cut(options, args.cuts, "throughput"), None, None)
    stages = placement.layout.world
    overlaps: list[Overlap] = []
    shares: list[float] = []
    found: dict[int, Pairs] = {}
    gaps: dict[int, list[float]] = {}
    for groups in (1, stages):
        pairs = found[groups] = Pairs()
        gaps[groups] = []
        with open_local(placement) as rank0:
            pids = pin_ring()
            loop = rank0.loop(PlainChooser(), groups=groups)
            start(loop, args.streams, args.depth, tokens)
            whole = WholeStreams(placement, args.streams, args.depth)
            for block in range(-1, args.blocks):
                began_ns = time.perf_counter_ns()
                with window(pids) as split_window:
                    rate, gap = decode_split(loop, args.streams)
                worked = overlap_in(loop, stages, began_ns)
                share = own_share(loop, stages, groups, began_ns)
                with window(pids) as whole_window:
                    alone = whole.decode()
                if block >= 0:
                    pairs.add(rate, alone, split_window, whole_window)
                    gaps[groups].append(gap)
                    if groups == stages and split_window.quiet and worked is not None:
                        overlaps.append(worked)
                        shares += [] if share is None else [share]
            whole.whole.close()
    one, many = found[1], found[stages]
    two = stages == 2
    slower = [b / a for a, b in zip(gaps[1], gaps[stages], strict=True)]
    figures = (
        Figure.of("one process", "tokens/s", many.b),
        Figure.of("1 round under way", "tokens/s", one.a),
        Figure.of(f"{stages} rounds under way", "tokens/s", many.a),
        Figure.of("1 round / one process", "times", one.ratios, ideal=1.0),
        Figure.of(
            f"{stages} rounds / one process",
            "times",
            many.ratios,
            ideal=float(stages),
            aim=1.95 if two else None,
            limit=1.8 if two else None,
        ),
        Figure.of("ms between tokens, groups / one round", "times", slower, ideal=1.0, limit=1.15, more=False),
        Figure.of(
            "stages that could work at once, by this cut", "", [w.possible for w in overlaps], ideal=float(stages)
        ),
        Figure.of("stages that did", "", [w.at_work for w in overlaps], ideal=float(stages)),
        Figure.of("a ring that costs nothing, same forwards: its time by ours", "times", shares, ideal=1.0),
    )
    thrown = one.thrown + many.thrown
    notes = (f"{len(one.a)} and {len(many.a)} pairs counted, {thrown} thrown away because others were busy",)
    layers = ", ".join(f"{first}..{end}" for first, end in placement.layout.ranges)
    setting = f"{args.model}, {args.streams} streams {args.depth} deep, layers {layers}, a core a stage"
    Result("throughput", setting, figures, notes).tell(args)


if __name__ == "__main__":
    main()
