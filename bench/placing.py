"""Predicted against measured, over cuts of the demo model on two unlike nodes that this machine plays.

    python bench/placing.py [--ratios 1,2,4] [--step 3] [--passes 5] [--tokens 24] [--prompt 128] [--part 32]
    python bench/placing.py --keep FILE --budget-s 200     # in pieces: again and again, until no cut is left
    python bench/placing.py --clockwork [--link 100mbit]
    python bench/placing.py --search

Rank 0 has one core and one thread, rank 1 another core, of which it may use only 1/ratio (limiter.py). Each is
calibrated as it will run (`ropeway calibrate`, limited the same way), the search predicts every cut, and every cut
runs, one after the other and then all again (`--passes`), as a machine may waver for minutes: each pass calibrates anew
and predicts from that. Predicted and measured are medians over all passes, and in a pass means without the tenth at
either end, as calibrations have them. Aims: predictions within 5 %, limit 10 %; the chosen cut within 3 % of the best
that was measured. Cuts in whose run others had the machine are left out (harness.py); with real-time priority
(`chrt -r 5`) they are kept off (quiet.py).
With `--clockwork` the ring and its processes are real and the stages wait for as long as given costs say: what is held
up to measurement then is the arithmetic of stages, hops and overlapping parts. With `--link` its loopback is as wide as
said (link.py), the probe measures it, and rank 0 alone runs too. `--search` times searches over 8 nodes and 128 layers.
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
from dataclasses import asdict, replace
from pathlib import Path

import link
import placing_clock
from harness import QUIET_SHARE, pin_ring, window
from limiter import limited
from placing_plot import draw
from placing_points import Pieces, Point, median_point
from placing_search import time_searches
from quiet import others_kept_off
from results import Figure, Result
from ropeway.checkpoints.checkpoint import resolve_checkpoint
from ropeway.cli.session import place_local
from ropeway.launch.model_facts import model_facts
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import open_local
from ropeway.placement.cost import Spot, price
from ropeway.placement.facts import Fleet, Link, Model, Node
from ropeway.placement.fit import mean_of_most
from ropeway.placement.inventory import node_from
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Pins, Wanted
from ropeway.serving.loop import Loop
from ropeway.serving.sequence import Sequence as Stream
from ropeway.serving.speech import PlainChooser

LOOPBACK = Link(0.0, 1e9)
"""The delay is in what the ends of a hop take (`ropeway calibrate` times it)."""
NAMES = ("fast", "slow")
Lost = dict[str, float]


def calibrated(name: str, core: int, share: float, args: argparse.Namespace) -> Node:
    """A node as `ropeway calibrate` measures it on one core with a share of the time."""
    command = [
        sys.executable,
        "-m",
        "ropeway",
        "calibrate",
        args.model,
        "--name",
        name,
        "--threads",
        "1",
        "--shared",
        "--again",
    ]
    command += ["--json", "--deep", str(max(4 * args.part, args.prompt)), "--limit-s", str(args.calibrate_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, {core % (os.cpu_count() or 1)})
    with limited(process.pid, share), others_kept_off():
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


def run_cut(point: Point, args: argparse.Namespace) -> Point:
    """The point with what a ring of the model that is cut there takes."""
    context = args.prompt + args.tokens + 64
    options = Options(args.model, cuts=(point.cut,), threads=1, context=context, chunk=args.part, part=args.part)
    with open_local(place_local(options, None, None)) as rank0:
        pids = pin_ring()
        with limited(pids[1], 1 / point.ratio) as limiter, window([*pids, *limiter]) as watched:
            point = timed(point, rank0.loop(PlainChooser(), part=args.part), args)
    return replace(point, others=watched.other_share or 0.0)


def run_clockwork(point: Point, nodes: tuple[Node, Node], args: argparse.Namespace) -> Point:
    """The point with what a ring of processes takes whose stages wait for as long as the nodes' costs say."""
    with placing_clock.ring(nodes, point.cut, args.part) as loop:
        return timed(point, loop, args)


def timed(point: Point, loop: Loop, args: argparse.Namespace) -> Point:
    """The point with what the ring takes to read a prompt and to decode behind it."""
    firsts: list[float] = []
    tokens: list[float] = []
    stages: list[list[float]] = []
    parts: list[list[float]] = []
    wires: list[float] = []
    world = len(point.stages_predicted_ms)
    prompt = tuple(5 + 7 * i % 1000 for i in range(args.prompt))
    for number in range(args.repeats):
        sequence = Stream(number, prompt, args.tokens)
        with others_kept_off():
            loop.scheduler.add(sequence)
            started = time.perf_counter()
            while not sequence.produced:
                loop.step()
            firsts.append((time.perf_counter() - started) * 1e3)
            parts.append(took(loop, world))
            while not loop.scheduler.idle:
                begun = time.perf_counter()
                loop.step()
                tokens.append((time.perf_counter() - begun) * 1e3)
        wires += [wire / 1e6 for record in loop.records if (wire := record.wire_ns(world)) is not None]
        stages.append([ms / max(1, args.tokens - 1) for ms in took(loop, world)])
        time.sleep(args.pause_s)
    return replace(
        point,
        decode_measured_ms=mean_of_most(tokens),
        first_measured_ms=mean_of_most(firsts),
        stages_ms=tuple(map(mean_of_most, zip(*stages, strict=True))),
        parts_ms=tuple(map(mean_of_most, zip(*parts, strict=True))),
        wire_ms=statistics.median(wires) if wires else 0.0,
    )


def took(loop: Loop, world: int) -> list[float]:
    """Milliseconds that each stage computed for the rounds since this was asked last."""
    time.sleep(0.05)
    loop.collect()
    records = list(loop.records)
    loop.records.clear()
    own = sum(record.own_ns + record.head_ns for record in records)
    others = [sum(record.dones[rank].forward_ns for record in records) for rank in range(1, world)]
    return [ns / 1e6 for ns in (own, *others)]


def predicted(problem: Problem, ratio: int, cut: int) -> Point:
    """A cut with what is predicted of it."""
    spots = [Spot("fast", 0, cut), Spot("slow", cut, len(problem.model.layers))]
    told = price(problem.model, problem.fleet, problem.wanted, problem.goal, spots if cut < spots[1].end else spots[:1])
    return Point(
        ratio,
        cut,
        told.decode_ms,
        1.0,
        told.first_token_ms,
        1.0,
        stages_predicted_ms=tuple(stage.decode_ms for stage in told.stages),
        parts_predicted_ms=tuple(stage.part_ms * len(problem.wanted.parts) for stage in told.stages),
    )


def sweep(ratio: int, model: Model, args: argparse.Namespace, pieces: Pieces) -> tuple[list[Point], Lost]:
    """Every cut on a fast node and one `ratio` times as slow; what the chosen cuts lose to the best, by goal."""
    layers, goals = len(model.layers), (Goal(1), Goal(0, 1))
    chosen: dict[Goal, list[int]] = {goal: [] for goal in goals}
    visits: dict[int, list[Point]] = {
        cut: [] for cut in [*range(args.step, layers, args.step), *([layers] if args.link else [])]
    }
    for number in range(args.passes):
        problem = problem_of(ratio, model, args, pieces, number)
        if problem is None:
            pieces.left += len(visits)
            continue
        for goal in goals:
            chosen[goal].append(search(replace(problem, goal=goal)).layout[0].end)
        for cut, found in visits.items():
            point = pieces.point(ratio, cut, number)
            if point is None and not pieces.over:
                point = run(problem, ratio, cut, args)
                if point.others <= QUIET_SHARE:
                    pieces.keep(point, str(number))
            if point is None or point.others > QUIET_SHARE:
                pieces.left += 1
            else:
                found.append(point)
    points = [median_point(found) for found in visits.values() if found]
    lost = {}
    for goal in goals if points and not pieces.left else ():
        lost[str(goal)] = loss(goal, statistics.mode(chosen[goal]), points)
    return points, lost


def run(problem: Problem, ratio: int, cut: int, args: argparse.Namespace) -> Point:
    """A cut, predicted and measured."""
    point = predicted(problem, ratio, cut)
    point = run_clockwork(point, nodes_of(problem), args) if args.clockwork else run_cut(point, args)
    say(str(point))
    return point


def nodes_of(problem: Problem) -> tuple[Node, Node]:
    """Rank 0's and rank 1's."""
    return problem.fleet.node("fast"), problem.fleet.node("slow")


def problem_of(ratio: int, model: Model, args: argparse.Namespace, pieces: Pieces, number: int = 0) -> Problem | None:
    """The question of placing the model on two nodes, calibrated for the `number`th pass unless they are kept.

    None where there is no time left for that.
    """
    if args.clockwork:
        nodes = placing_clock.clock_nodes(ratio)
        width = placing_clock.probed() if args.link else LOOPBACK
        # The probe's round trip has in it what hops cost the ends, which the nodes' own `hop_ms` has as well.
        between = Link(0.0, width.bytes_per_s)
    else:
        between, calibrations = LOOPBACK, []
        for core, (name, share) in enumerate(zip(NAMES, (1.0, 1 / ratio), strict=True)):
            kept = f"{name} 1:{ratio} {number}"
            if pieces.node(kept) is None and pieces.over:
                return None
            calibrations.append(pieces.node(kept) or calibrated(name, core, share, args))
            pieces.keep(calibrations[-1], kept)
        nodes = calibrations[0], calibrations[1]
    wanted = Wanted(prompt=args.prompt, part=args.part, depth=args.prompt + args.tokens // 2)
    pins = Pins(first="fast") if args.link else Pins(order=NAMES)
    return Problem(model, Fleet(nodes, link=between), wanted, Goal(1), pins)


def loss(goal: Goal, chosen: int, points: Sequence[Point]) -> float:
    """What the measured cut nearest to the chosen one takes more than the best measured, as a share."""

    def ms(point: Point) -> float:
        return point.decode_measured_ms if goal.decode else point.first_measured_ms

    near, best = min(points, key=lambda p: abs(p.cut - chosen)), min(points, key=ms)
    say(f"1:{near.ratio} for {goal}: chosen {chosen}; {near.cut} took {ms(near):.2f} ms, {best.cut} {ms(best):.2f}")
    return ms(near) / ms(best) - 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--ratios", default="1,2,4")
    parser.add_argument("--step", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--part", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--calibrate-s", type=float, default=12.0)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="measurements between pieces of a run")
    parser.add_argument("--pause-s", type=float, default=0.2, help="between prompts, for others on the machine")
    parser.add_argument("--budget-s", type=float, default=3600.0, help="begin no more cuts after so long")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--clockwork", action="store_true")
    parser.add_argument("--link", metavar="RATE", help="with --clockwork: the loopback's width, 1gbit")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.link and not args.clockwork:
        parser.error("--link goes with --clockwork")
    link.inside(args.link)
    if args.search:
        time_searches().tell(args)
        return
    if args.clockwork:
        model = placing_clock.MODEL
    else:
        args.model = str(resolve_checkpoint(args.model))
        model = model_facts(Path(args.model))
    pieces = Pieces(args.keep, args.budget_s)
    points: list[Point] = []
    figures = []
    for ratio in map(int, args.ratios.split(",")):
        found, lost = sweep(ratio, model, args, pieces)
        points += found
        errors = {
            "ms a token": [abs(p.decode_error) for p in found],
            "first token": [abs(p.first_error) for p in found],
        }
        figures += [
            Figure.of(
                f"1 to {ratio}: a cut's own passes apart, a token", "", [p.decode_spread for p in found], more=False
            ),
            Figure.of(f"1 to {ratio}: and its first token", "", [p.first_spread for p in found], more=False),
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
        args.svg.write_text(draw(points))
    load = f"prompt {args.prompt} in parts of {args.part}, {args.tokens} tokens"
    shape = f"{load}, a cut at every {args.step}th layer, {args.passes} passes"
    setting = f"{Path(model.name).name}, {shape}{f', a link of {args.link}' if args.link else ''}"
    notes = (f"{pieces.left} cuts or more are left to measure",) if pieces.left else ()
    Result("placing", setting, tuple(figures), notes).tell(args, {"points": [asdict(p) for p in points]})


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
