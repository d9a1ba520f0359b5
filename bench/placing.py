"""Predicted against measured, over cuts of the demo model on two unlike nodes that this machine plays.

    python bench/placing.py [--ratios 1,2,4] [--step 5] [--tokens 64] [--prompt 512] [--part 128] [--svg FILE]
    python bench/placing.py --clockwork
    python bench/placing.py --search

Rank 0 has one core and one thread, rank 1 another core, of which it may use only 1/ratio (limiter.py). Each is
calibrated as it will run (`ropeway calibrate`, limited the same way), the search predicts every cut, and every cut
runs. Aims: predictions within 5 %, limit 10 %; the chosen cut within 3 % of the best that was measured. Cuts in whose
run others had the machine are left out (harness.py). With `--clockwork` the ring and its processes are real and the
stages wait for as long as given costs say: what is held up to measurement then is the arithmetic of stages, hops and
overlapping parts, whatever others do to the machine's caches. `--search` times searches over 8 nodes and 128 layers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from harness import QUIET_SHARE, pin_ring, window
from limiter import limited
from placing_plot import Point
from placing_plot import draw as draw_points
from results import Figure, Result
from ropeway.checkpoints.checkpoint import resolve_checkpoint
from ropeway.cli.session import place_local
from ropeway.launch.hops import clockwork, hop_ms
from ropeway.launch.model_facts import model_facts
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import open_local
from ropeway.placement.cost import STAGING, Spot, price, stage_bytes
from ropeway.placement.facts import Cost, Costs, Fleet, Layer, Link, Model, Node
from ropeway.placement.inventory import node_from
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted
from ropeway.serving.loop import Loop
from ropeway.serving.sequence import Sequence as Stream
from ropeway.serving.speech import PlainChooser

LOOPBACK = Link(0.0, 1e9)
"""The delay is in what the ends of a hop take (`ropeway calibrate` times it)."""
CLOCK_MODEL = Model("clockwork", (Layer("a", 1),) * 30, 4096)
Lost = dict[str, float]


def calibrated(name: str, core: int, share: float, args: argparse.Namespace) -> Node:
    """A node as `ropeway calibrate` measures it on one core with a share of the time."""
    command = [sys.executable, "-m", "ropeway", "calibrate", args.model, "--name", name, "--threads", "1", "--again"]
    command += ["--json", "--deep", str(max(4 * args.part, args.prompt)), "--limit-s", str(args.calibrate_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, {core % (os.cpu_count() or 1)})
    with limited(process.pid, share):
        told, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"calibration of {name} has failed")
    value = json.loads(told)
    say(f"{name}: spread {value['spread']:.0%}, rested {value['rested']:.2f} {value.pop('doubts')}")
    del value["fresh"]
    return node_from(value)


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def run_cut(point: Point, share: float, args: argparse.Namespace) -> Point:
    """The point with what a ring of the model that is cut there takes."""
    context = args.prompt + args.tokens + 64
    options = Options(args.model, cuts=(point.cut,), threads=1, context=context, chunk=args.part, part=args.part)
    with open_local(place_local(options, None, None)) as rank0:
        pids = pin_ring()
        with limited(pids[1], share), window(pids) as watched:
            point = timed(point, rank0.loop(PlainChooser(), part=args.part), args)
    return replace(point, others=watched.other_share or 0.0)


def run_clockwork(point: Point, problem: Problem, args: argparse.Namespace) -> Point:
    """The point with what a ring of processes takes whose stages wait for as long as the nodes' costs say."""
    layers = len(problem.model.layers)
    ranges = ((0, point.cut), (point.cut, layers))
    costs = [clock(node, end - first) for node, (first, end) in zip(problem.fleet.nodes, ranges, strict=True)]
    with clockwork(costs, problem.model.row_bytes // 4, args.part) as loop:
        return timed(point, loop, args)


def clock(node: Node, layers: int) -> Costs:
    """The costs of a stage of so many layers."""
    layer, stage = node.layers["a"], node.stage

    def held(one: Cost, own: Cost) -> Cost:
        return Cost(
            own.fixed_ms + layers * one.fixed_ms,
            own.row_ms + layers * one.row_ms,
            own.depth_ms + layers * one.depth_ms,
        )

    return Costs(held(layer.decode, stage.decode), held(layer.prompt, stage.prompt))


def timed(point: Point, loop: Loop, args: argparse.Namespace) -> Point:
    """The point with what the ring takes to read a prompt and to decode behind it."""
    firsts: list[float] = []
    tokens: list[float] = []
    stages: list[tuple[float, float]] = []
    wires: list[float] = []
    prompt = tuple(5 + 7 * i % 1000 for i in range(args.prompt))
    for number in range(args.repeats):
        sequence = Stream(number, prompt, args.tokens)
        loop.scheduler.add(sequence)
        started = time.perf_counter()
        while not sequence.produced:
            loop.step()
        firsts.append((time.perf_counter() - started) * 1e3)
        loop.records.clear()
        while not loop.scheduler.idle:
            begun = time.perf_counter()
            loop.step()
            tokens.append((time.perf_counter() - begun) * 1e3)
        time.sleep(0.05)
        loop.collect()
        for record in loop.records:
            if record.rows == 1 and (wire := record.wire_ns(2)) is not None:
                wires.append(wire / 1e6)
                stages.append(((record.own_ns + record.head_ns) / 1e6, record.dones[1].forward_ns / 1e6))
    return replace(
        point,
        decode_measured_ms=statistics.median(tokens),
        first_measured_ms=statistics.median(firsts),
        stages_ms=tuple(statistics.median(column) for column in zip(*stages, strict=True)),
        wire_ms=statistics.median(wires),
    )


def sweep(ratio: int, model: Model, nodes: tuple[Node, Node], args: argparse.Namespace) -> tuple[list[Point], Lost]:
    """Every cut on a fast node and one `ratio` times as slow; what the chosen cuts lose to the best, by goal."""
    wanted = Wanted(prompt=args.prompt, part=args.part, depth=args.prompt + args.tokens // 2)
    problem = Problem(model, Fleet(nodes, link=LOOPBACK), wanted, Goal(1), Pins(order=("fast", "slow")))
    layers, found = len(model.layers), []
    for cut in range(args.step, layers, args.step):
        told = price(model, problem.fleet, wanted, Goal(1), [Spot("fast", 0, cut), Spot("slow", cut, layers)])
        stages = tuple(stage.decode_ms for stage in told.stages)
        point = Point(ratio, cut, told.decode_ms, 1.0, told.first_token_ms, 1.0, stages_predicted_ms=stages)
        point = run_clockwork(point, problem, args) if args.clockwork else run_cut(point, 1 / ratio, args)
        say(describe(point))
        time.sleep(args.pause_s)
        if point.others <= QUIET_SHARE:
            found.append(point)
    lost = {}
    for goal in (Goal(1), Goal(0, 1)) if found else ():
        lost[str(goal)] = loss(goal, search(replace(problem, goal=goal)).layout[0].end, found)
    return found, lost


def clock_nodes(ratio: int) -> tuple[Node, Node]:
    """Two nodes whose times are given, and a hop's measured: 12 ms a token and 80 ms a part of 128 on the fast one."""
    layer = Costs(Cost(0.35, 0.0, 0.0001), Cost(0.1, 0.018, 0.00001))
    stage = Costs(Cost(0.3), Cost(0.5))
    hop = hop_ms(CLOCK_MODEL.row_bytes // 4)
    fast = Node("fast", 1 << 40, {"a": layer}, stage, hop_ms=hop)
    slow = Node("slow", 1 << 40, {"a": layer.times(ratio)}, stage.times(ratio), hop_ms=hop)
    return fast, slow


def loss(goal: Goal, chosen: int, points: Sequence[Point]) -> float:
    """What the measured cut nearest to the chosen one takes more than the best measured, as a share."""

    def ms(point: Point) -> float:
        return point.decode_measured_ms if goal.decode else point.first_measured_ms

    near, best = min(points, key=lambda p: abs(p.cut - chosen)), min(points, key=ms)
    say(f"1:{near.ratio} for {goal}: chosen {chosen}; {near.cut} took {ms(near):.2f} ms, {best.cut} {ms(best):.2f}")
    return ms(near) / ms(best) - 1


def describe(p: Point) -> str:
    """A point in a line."""
    own, told = (", ".join(f"{ms:.2f}" for ms in times) for times in (p.stages_ms, p.stages_predicted_ms))
    return (
        f"1:{p.ratio} cut {p.cut:2}: {p.decode_ms:6.2f} ms a token, measured {p.decode_measured_ms:6.2f} "
        f"({p.decode_error:+.1%}); first token {p.first_ms:6.0f}, measured {p.first_measured_ms:6.0f} "
        f"({p.first_error:+.1%}); stages {told}, measured {own}; wire {p.wire_ms:.2f}; others {p.others:.0%}"
    )


def time_searches() -> Result:
    """Processor seconds of searches over 8 nodes and 128 layers."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from placement.cases import GOALS, random_problem

    figures = []
    for goal in GOALS:
        times = []
        for seed in range(5):
            problem = random_problem(seed, 8, 128)
            wanted = Wanted(context=256, streams=8, prompt=4096, part=512)
            whole = stage_bytes(
                problem.model, problem.fleet.nodes[0], wanted, Spot("n0", 0, 128), embeds=True, head=True
            )
            draw = random.Random(seed)
            buffers = STAGING * wanted.part * problem.model.row_bytes
            limits = [buffers + round((whole - buffers) * draw.uniform(0.15, 0.8)) for _ in problem.fleet.nodes]
            roomy = [replace(n, limit_bytes=limit) for n, limit in zip(problem.fleet.nodes, limits, strict=True)]
            fleet = replace(problem.fleet, nodes=tuple(roomy))
            started = time.process_time()
            search(replace(problem, goal=goal, pins=Pins(), wanted=wanted, fleet=fleet))
            times.append(time.process_time() - started)
        figures.append(Figure.of(f"a search for {goal}", "s", times, limit=1.0, more=False))
    return Result("placing", "searches over 8 random nodes and 128 layers of up to 3 kinds", tuple(figures))


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
    parser.add_argument("--pause-s", type=float, default=0.0, help="between cuts, for others on the machine")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--clockwork", action="store_true")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.search:
        time_searches().tell(args)
        return
    if args.clockwork:
        model = CLOCK_MODEL
    else:
        args.model = str(resolve_checkpoint(args.model))
        model = model_facts(Path(args.model))
        fast = calibrated("fast", 0, 1.0, args)
    points: list[Point] = []
    figures = []
    for ratio in map(int, args.ratios.split(",")):
        if args.clockwork:
            nodes = clock_nodes(ratio)
        else:
            nodes = fast, replace(fast, name="slow") if ratio == 1 else calibrated("slow", 1, 1 / ratio, args)
        found, lost = sweep(ratio, model, nodes, args)
        points += found
        errors = {
            "ms a token": [abs(p.decode_error) for p in found],
            "first token": [abs(p.first_error) for p in found],
        }
        figures += [
            *(
                Figure.of(f"1 to {ratio}: error of {what}", "", values, aim=0.05, limit=0.10, more=False)
                for what, values in errors.items()
            ),
            *(
                Figure.of(f"1 to {ratio}: chosen cut for {goal} over best", "", [share], limit=0.03, more=False)
                for goal, share in lost.items()
            ),
        ]
    if args.svg and points:
        args.svg.write_text(draw_points(points))
    shape = f"prompt {args.prompt} in parts of {args.part}, {args.tokens} tokens, a cut at every {args.step}th layer"
    setting = f"{Path(model.name).name}, {shape}"
    Result("placing", setting, tuple(figures)).tell(args, {"points": [asdict(p) for p in points]})


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
