"""Predicted against measured, over cuts of the demo model on two unlike nodes that this machine plays.

    python bench/placement.py [--ratios 1,2,4] [--step 5] [--tokens 64] [--prompt 512] [--part 128] [--svg FILE]

Rank 0 has one core and one thread, rank 1 another core, of which it may use only 1/ratio (bench/limiter.py). Each is
calibrated as it will run (`ropeway calibrate`, limited the same way), hops are timed in a ring without any layers, and
the search predicts every cut; then every cut runs. Aims: predictions within 5 %, limit 10 %; the chosen cut within 3 %
of the best that was measured. With --search only the search is timed: 8 nodes and 128 layers in under a second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness import machine, pin_ring
from limiter import limited
from ropeway.checkpoints.checkpoint import resolve_checkpoint
from ropeway.cli.session import place_local
from ropeway.launch.model_facts import model_facts
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import open_local
from ropeway.placement.cost import Spot, price
from ropeway.placement.facts import Fleet, Link, Model, Node
from ropeway.placement.inventory import node_from
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted
from ropeway.serving.sequence import Sequence as Stream
from ropeway.serving.speech import PlainChooser


@dataclass(frozen=True, slots=True)
class Point:
    """One cut: predicted and measured milliseconds."""

    ratio: int
    cut: int
    decode_ms: float
    decode_measured_ms: float
    first_ms: float
    first_measured_ms: float
    stages_ms: tuple[float, ...] = ()
    """Measured, each stage's forward of a token."""
    stages_predicted_ms: tuple[float, ...] = ()
    wire_ms: float = 0.0


def calibrated(model: str, name: str, core: int, share: float, args: argparse.Namespace) -> Node:
    """A node as `ropeway calibrate` measures it on one core with a share of the time."""
    command = [
        sys.executable,
        "-m",
        "ropeway",
        "calibrate",
        model,
        "--name",
        name,
        "--threads",
        "1",
        "--again",
        "--json",
    ]
    command += ["--deep", str(max(4 * args.part, args.prompt)), "--limit-s", str(args.calibrate_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: pin(core))
    with limited(process.pid, share):
        told, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"calibration of {name} has failed")
    value = json.loads(told)
    print(f"{name}: spread {value['spread']:.0%} {value.pop('doubts')}", file=sys.stderr)
    value.pop("fresh")
    return node_from(value)


def pin(core: int) -> None:
    """Keep this process on one core, where the system has such a thing."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})


def measured(
    model: str, cut: int, share: float, args: argparse.Namespace
) -> tuple[float, float, tuple[float, ...], float]:
    """(ms a token, ms to the first token, each stage's ms, the wire's) of a ring cut there."""
    context = args.prompt + args.tokens + 64
    options = Options(model, cuts=(cut,), threads=1, context=context, chunk=args.part, part=args.part)
    firsts, tokens, stages, wires = [], [], [], []
    with open_local(place_local(options, None, None)) as rank0:
        pids = pin_ring()
        with limited(pids[1], share):
            loop = rank0.loop(PlainChooser(), part=args.part)
            prompt = tuple(5 + 7 * i % 1000 for i in range(args.prompt))
            for number in range(args.repeats):
                sequence = Stream(number, prompt, args.tokens)
                loop.scheduler.add(sequence)
                started = time.perf_counter()
                while not sequence.produced:
                    loop.step()
                firsts.append((time.perf_counter() - started) * 1e3)
                at = len(loop.records)
                while not loop.scheduler.idle:
                    begun = time.perf_counter()
                    loop.step()
                    tokens.append((time.perf_counter() - begun) * 1e3)
                time.sleep(0.05)
                loop.collect()
                for record in list(loop.records)[at:]:
                    if record.rows == 1 and (wire := record.wire_ns(2)) is not None:
                        wires.append(wire / 1e6)
                        stages.append(((record.own_ns + record.head_ns) / 1e6, record.dones[1].forward_ns / 1e6))
    middle = tuple(statistics.median(column) for column in zip(*stages, strict=True))
    return statistics.median(tokens), statistics.median(firsts), middle, statistics.median(wires)


def sweep(ratio: int, fast: Node, model: Model, link: Link, args: argparse.Namespace) -> list[Point]:
    """Every cut on a fast node and one that is `ratio` times as slow."""
    slow = replace(fast, name="slow") if ratio == 1 else calibrated(args.model, "slow", 1, 1 / ratio, args)
    fleet = Fleet((fast, slow), link=link)
    wanted = Wanted(context=4096, prompt=args.prompt, part=args.part, depth=args.prompt + args.tokens // 2)
    layers, found = len(model.layers), []
    for cut in range(args.step, layers, args.step):
        spots = [Spot("fast", 0, cut), Spot("slow", cut, layers)]
        told = price(model, fleet, wanted, Goal(1), spots)
        token, first, stages, wire = measured(args.model, cut, 1 / ratio, args)
        found.append(
            Point(
                ratio, cut, told.decode_ms, token, told.first_token_ms, first, stages,
                tuple(stage.decode_ms for stage in told.stages), wire,
            )
        )  # fmt: skip
        print(describe(found[-1]), file=sys.stderr)
    for goal in (Goal(1), Goal(0, 1)):
        print(choice(goal, Problem(model, fleet, wanted, goal, Pins(order=("fast", "slow"))), found), file=sys.stderr)
    return found


def describe(p: Point) -> str:
    """A point in a line."""
    return (
        f"1:{p.ratio} cut {p.cut:2}: {p.decode_ms:6.2f} ms a token predicted, {p.decode_measured_ms:6.2f} measured "
        f"({p.decode_ms / p.decode_measured_ms - 1:+.1%}); first token {p.first_ms:6.0f}, {p.first_measured_ms:6.0f} "
        f"({p.first_ms / p.first_measured_ms - 1:+.1%}); stages {', '.join(f'{ms:.2f}' for ms in p.stages_ms)} for "
        f"{', '.join(f'{ms:.2f}' for ms in p.stages_predicted_ms)}, wire {p.wire_ms:.2f}"
    )


def choice(goal: Goal, problem: Problem, points: Sequence[Point]) -> str:
    """The measured time of the cut nearest to the chosen one against the best measured."""
    chosen = search(problem).layout[0].end

    def ms(point: Point) -> float:
        return point.decode_measured_ms if goal.decode else point.first_measured_ms

    near, best = min(points, key=lambda p: abs(p.cut - chosen)), min(points, key=ms)
    return (
        f"1:{points[0].ratio} for {goal}: chosen {chosen}, measured at {near.cut} {ms(near):.2f} ms, best {best.cut} "
        f"{ms(best):.2f} ms ({ms(near) / ms(best) - 1:+.1%})"
    )


def draw(points: Sequence[Point]) -> str:
    """Predicted (lines) and measured (dots) over the cuts, as SVG: a token above, the first token below."""
    width, height, colours = 900, 620, {1: "#2a9d8f", 2: "#457b9d", 4: "#e76f51"}
    box = f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>']
    out.append(f'<rect width="{width}" height="{height}" fill="#fff"/>')
    cuts = sorted({p.cut for p in points})
    panels = (
        (30, "ms a token", "decode_ms", "decode_measured_ms"),
        (330, "ms to the first token", "first_ms", "first_measured_ms"),
    )
    for top, title, line, dot in panels:
        most = max(max(getattr(p, line), getattr(p, dot)) for p in points) * 1.05
        out.append(f'<text x="60" y="{top - 8}" font-weight="bold">{title}: predicted (lines), measured (dots)</text>')
        out.append(f'<path d="M60 {top}V{top + 240}H860" fill="none" stroke="#888"/>')
        for share in (0.25, 0.5, 0.75, 1):
            out.append(f'<text x="54" y="{top + 244 - 240 * share:.0f}" text-anchor="end">{most * share:.0f}</text>')

        def at(cut: int, ms: float, top: int = top, most: float = most) -> tuple[float, float]:
            return 60 + 780 * (cut - cuts[0]) / max(1, cuts[-1] - cuts[0]), top + 240 - 240 * ms / most

        for ratio in sorted({p.ratio for p in points}):
            own, colour = [p for p in points if p.ratio == ratio], colours.get(ratio, "#555")
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(p.cut, getattr(p, line)) for p in own))
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            for p in own:
                x, y = at(p.cut, getattr(p, dot))
                out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
            x, y = at(own[-1].cut, getattr(own[-1], line))
            out.append(f'<text x="{x + 6:.1f}" y="{y + 4:.1f}" fill="{colour}">1:{ratio}</text>')
        for cut in cuts:
            out.append(f'<text x="{at(cut, 0)[0]:.1f}" y="{top + 256}" text-anchor="middle">{cut}</text>')
    return "\n".join([*out, "</svg>", ""])


def time_searches() -> None:
    """Processor seconds of searches over 8 nodes and 128 layers."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from placement.cases import GOALS, random_problem

    for goal in GOALS[:4]:
        times = []
        for seed in range(5):
            problem = random_problem(seed, 8, 128)
            wanted = Wanted(context=256, streams=8, prompt=4096, part=512)
            roomy = tuple(replace(node, limit_bytes=node.limit_bytes * 3) for node in problem.fleet.nodes)
            fleet = replace(problem.fleet, nodes=roomy)
            started = time.process_time()
            search(replace(problem, goal=goal, pins=Pins(), wanted=wanted, fleet=fleet))
            times.append(time.process_time() - started)
        print(f"8 nodes, 128 layers, {goal}: {', '.join(f'{t:.2f}' for t in times)} s")


def error(points: Sequence[Point], of: str, by: str) -> str:
    """The median and the largest error of a prediction."""
    found = [abs(getattr(p, of) / getattr(p, by) - 1) for p in points]
    return f"median {statistics.median(found):.1%}, largest {max(found):.1%}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--ratios", default="1,2,4")
    parser.add_argument("--step", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--part", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--calibrate-s", type=float, default=20.0)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.search:
        time_searches()
        return
    path = resolve_checkpoint(args.model)
    args.model = str(path)
    model = model_facts(path)
    fast = calibrated(args.model, "fast", 0, 1.0, args)
    link = Link(0.0, 1e9)
    points = [p for ratio in map(int, args.ratios.split(",")) for p in sweep(ratio, fast, model, link, args)]
    if args.svg:
        args.svg.write_text(draw(points))
    if args.json:
        print(json.dumps({"machine": machine(), "points": [asdict(p) for p in points]}))
        return
    print(f"{machine()}; {path.name}, prompt {args.prompt} in parts of {args.part}, {args.tokens} tokens")
    for p in points:
        print(describe(p))
    print(f"ms a token: error {error(points, 'decode_ms', 'decode_measured_ms')}")
    print(f"first token: error {error(points, 'first_ms', 'first_measured_ms')}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
