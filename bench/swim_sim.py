"""Clusters of hundreds in simulated time: false deaths, detection, partitions, slow and stopped nodes, packet sizes.

    python bench/swim_sim.py                 # every table of docs/membership.md, some minutes on one core
    python bench/swim_sim.py detection --sizes 3 10 --seeds 3

One thread, no sockets, no clock but the simulated one; the same seeds give the same figures on any machine. The exit
status is 1 when a promise of docs/membership.md is broken.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from ropeway.cluster.simulation import Weather, World, node_id
from ropeway.cluster.swim import LAN, WAN, Died, Joined, Recovered, State, Suspected, Swim, Timing

CALM = Weather()
ROUGH = Weather(loss=0.05, low_s=0.0, high_s=0.4)
TIMINGS = {"LAN": LAN, "WAN": WAN}
PACKET_BYTES = 1_200
broken: list[str] = []


def main() -> int:
    """Run the scenarios that were asked for."""
    parser = argparse.ArgumentParser(description="Simulate membership in clusters of hundreds.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all of them, unless named")
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 10, 30, 100, 300])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.scenarios or SCENARIOS:
        began = time.process_time()
        print(f"\n== {name}", flush=True)
        SCENARIOS[name](options.sizes, range(1, options.seeds + 1))
        print(f"({time.process_time() - began:.0f} s of processor time)")
    for line in broken:
        print(f"BROKEN {line}")
    return 1 if broken else 0


def promise(kept: bool, what: str) -> None:
    """Note a promise that is not kept."""
    if not kept:
        broken.append(what)


def spread(values: Sequence[float]) -> str:
    """Least, median and most."""
    return f"{min(values):.1f} / {statistics.median(values):.1f} / {max(values):.1f}"


def grown(seed: int, size: int, timing: Timing, weather: Weather, settle_s: float = 30.0) -> tuple[World, list[str]]:
    """A cluster that is agreed; it comes together in calm weather, and the weather given begins then."""
    world = World(seed, timing, CALM)
    labels = world.grow(size, apart_s=0.02)
    world.run_until(world.agreed, 600.0, 1.0)
    world.weather = weather
    world.run(settle_s)
    world.log.clear()
    return world, labels


def detection(sizes: Sequence[int], seeds: range) -> None:
    """Stop one node: when is it suspected, when first and when last believed dead."""
    print("times weather nodes runs | s to suspicion | s from suspicion to death | bounds | s until all know")
    for name, weather, said in (("LAN", CALM, "calm"), ("WAN", ROUGH, "5 % loss, 0..400 ms")):
        timing = TIMINGS[name]
        for size in sizes:
            suspected, dead, everywhere = [], [], []
            low_s, high_s = timing.suspicion_min_s(size), timing.suspicion_max_s(size)
            high_s = high_s if timing.confirmations(size) else low_s
            runs = seeds if size <= 100 else seeds[:1]
            for seed in runs:
                world, labels = grown(seed, size, timing, weather)
                first, died, last = stop_one(world, labels[size // 2])
                suspected.append(first)
                dead.append(died - first)
                everywhere.append(last)
                promise(low_s - 0.01 <= died - first <= high_s + 0.01, f"detection {name} {size} seed {seed}")
                others = {e.member.label for _, _, e in world.log if isinstance(e, Died)}
                promise(others == {labels[size // 2]}, f"detection {name} {size} seed {seed}: deaths of {others}")
            bounds = f"{low_s:.1f}..{high_s:.1f}"
            line = f"{name} {said} {size} {len(runs)} | {spread(suspected)} | {spread(dead)} | {bounds}"
            print(f"{line} | {spread(everywhere)}", flush=True)


def stop_one(world: World, label: str) -> tuple[float, float, float]:
    """Seconds from a node's stop to the suspicion that ended in the first death, to that death, and to the last."""
    world.stop(label)
    began = world.now

    def gone() -> bool:
        return all((m := node.swim.member(node_id(label))) and m.state is State.DEAD for node in world.running())

    world.run_until(gone, 3_000.0, 0.5)
    mine = [(at, event) for at, _, event in world.log if isinstance(event, Suspected | Died) and at >= began]
    mine = [(at, event) for at, event in mine if event.member.label == label]
    died = [at for at, event in mine if isinstance(event, Died)]
    first = min(at for at, event in mine if isinstance(event, Suspected))
    return first - began, min(died) - began, max(died) - began


def weather(sizes: Sequence[int], seeds: range) -> None:
    """Nobody stops: who is suspected, who is declared dead, and what it costs."""
    minutes = 20
    print(
        "times nodes runs x minutes | suspicions of a node an hour | false deaths | packets/s a node | bytes/s | most"
    )
    for name in ("WAN", "LAN"):
        for size in sizes if name == "WAN" else [size for size in sizes if size <= 10]:
            stories, deaths, packets, sent, largest = 0, 0, 0, 0, 0
            runs = seeds if size <= 100 else seeds[:1]
            for seed in runs:
                world, _ = grown(seed, size, TIMINGS[name], ROUGH)
                world.traffic.packets = world.traffic.sent_bytes = 0
                world.run(60.0 * minutes)
                stories += len(
                    {(e.member.label, e.member.incarnation) for _, _, e in world.log if isinstance(e, Suspected)}
                )
                deaths += sum(isinstance(event, Died) for _, _, event in world.log)
                packets += world.traffic.packets
                sent += world.traffic.sent_bytes
                largest = max(largest, world.traffic.largest)
                world.weather = CALM
                world.run_until(world.agreed, 600.0, 1.0)
            seconds = len(runs) * size * minutes * 60
            promise(deaths == 0, f"weather {name} {size}: {deaths} false deaths")
            promise(largest <= PACKET_BYTES, f"weather {name} {size}: a packet of {largest} bytes")
            print(
                f"{name} {size} {len(runs)} x {minutes} | {stories / seconds * 3600:.2f} | {deaths} | "
                f"{packets / seconds:.2f} | {sent / seconds:.0f} | {largest}",
                flush=True,
            )


def partition(sizes: Sequence[int], seeds: range) -> None:
    """Cut a third off for five minutes, with names, and heal."""
    print("times nodes runs | s until both parts know | s from healing to one state | deaths on one's own side")
    for name, air in (("LAN", CALM), ("WAN", ROUGH)):
        for size in (size for size in sizes if size >= 10):
            parted, healed, own = [], [], 0
            for seed in seeds if size <= 100 else seeds[:1]:
                world, labels = grown(seed, size, TIMINGS[name], air)
                for label in labels:
                    world.act(label, registering(f"name-{label}"))
                few = set(labels[: size // 3])
                world.part(few)
                parted.append(world.run_until(lambda: all(apart(world, few)), 3_000.0, 1.0))  # noqa: B023
                world.run(300.0)
                world.log.clear()
                world.part()
                healed.append(world.run_until(lambda: whole(world, size), 3_000.0, 0.5))  # noqa: B023
                deaths = [(who, e.member.label) for _, who, e in world.log if isinstance(e, Died)]
                own += sum((who in few) == (label in few) for who, label in deaths)
            promise(own == 0, f"partition {name} {size}: {own} deaths on one's own side")
            print(f"{name} {size} {len(healed)} | {spread(parted)} | {spread(healed)} | {own}", flush=True)


def registering(name: str) -> Callable[[Swim, float], None]:
    """What registers a name."""
    return lambda swim, now: swim.register(now, name)


def apart(world: World, few: set[str]) -> list[bool]:
    """Of each node: whether it sees its own part as living, and no other."""
    sizes = {True: len(few), False: len(world.nodes) - len(few)}
    return [len(node.swim.living()) == sizes[node.label in few] for node in world.running()]


def whole(world: World, size: int) -> bool:
    """Everybody sees all members alive and all names."""
    if any(len(node.swim.living()) != size or len(node.swim.names()) != size for node in world.running()):
        return False
    return world.agreed()


def slow(sizes: Sequence[int], seeds: range) -> None:
    """A tenth of the nodes handles everything late; another tenth stands still for 10 s once a minute."""
    print(
        "times lag nodes runs x minutes | suspicions | deaths | of those, of nodes that were neither slow nor stopped"
    )
    for name, lag_s, stops in (
        ("WAN", 1.0, False),
        ("WAN", 2.5, False),
        ("LAN", 0.3, False),
        ("WAN", 0.0, True),
        ("LAN", 0.0, True),
    ):
        for size in (size for size in sizes if 10 <= size <= 100):
            suspicions, deaths, innocent = 0, 0, 0
            for seed in seeds:
                world, labels = grown(seed, size, TIMINGS[name], Weather(loss=0.01, high_s=0.02))
                odd = labels[1 : 1 + size // 10]
                for label in odd:
                    world.nodes[label].lag_s = lag_s
                for _ in range(10):
                    world.run(50.0)
                    for label in odd if stops else []:
                        world.stop(label)
                    world.run(10.0)
                    for label in odd if stops else []:
                        world.resume(label)
                suspicions += sum(isinstance(event, Suspected) for _, _, event in world.log)
                died = [event.member.label for _, _, event in world.log if isinstance(event, Died)]
                deaths += len(died)
                innocent += sum(label not in odd for label in died)
            promise(innocent == 0, f"slow {name} {size}: {innocent} deaths of the innocent")
            kind = "10 s stops" if stops else f"{lag_s} s"
            print(f"{name} {kind} {size} {len(seeds)} x 10 | {suspicions} | {deaths} | {innocent}", flush=True)


def joining(sizes: Sequence[int], seeds: range) -> None:
    """All nodes come in at the same moment by one; then one registers a name."""
    print("times nodes runs | s until all know all | s until all know a new name | largest packet")
    for name, air in (("LAN", CALM), ("WAN", ROUGH)):
        for size in sizes:
            known, named, largest = [], [], 0
            for seed in seeds if size <= 100 else seeds[:1]:
                world = World(seed, TIMINGS[name], air)
                world.grow(1)
                world.grow(size - 1, apart_s=0.0)
                known.append(world.run_until(lambda: whole_living(world, size), 600.0))  # noqa: B023
                world.run(60.0)
                label = next(iter(world.nodes))
                world.act(label, registering("pp-entry"))
                named.append(world.run_until(lambda: all(n.swim.resolve("pp-entry") for n in world.running()), 600.0))  # noqa: B023
                largest = max(largest, world.traffic.largest)
            promise(largest <= PACKET_BYTES, f"joining {name} {size}: a packet of {largest} bytes")
            print(f"{name} {size} {len(known)} | {spread(known)} | {spread(named)} | {largest}", flush=True)


def whole_living(world: World, size: int) -> bool:
    """Everybody sees all members."""
    return all(len(node.swim.living()) == size for node in world.running())


def turmoil(sizes: Sequence[int], seeds: range) -> None:
    """Ten minutes of stops, restarts, partings, leavings and names; then peace: s until all believe the same."""
    print("times nodes runs | changes made | s from peace to one state | events seen")
    for name, air in (("LAN", Weather(loss=0.05, high_s=0.05)), ("WAN", ROUGH)):
        for size in (size for size in sizes if 10 <= size <= 100):
            took, changes, seen = [], 0, Counter[str]()
            for seed in seeds:
                world, labels = grown(seed, size, TIMINGS[name], air)
                changes += stir(world, labels, Random(seed))
                took.append(world.run_until(lambda: at_peace(world), 3_000.0, 1.0))  # noqa: B023
                seen += Counter(type(e).__name__ for _, _, e in world.log if isinstance(e, Died | Recovered | Joined))
            said = ", ".join(f"{kind} {count}" for kind, count in sorted(seen.items()))
            print(f"{name} {size} {len(seeds)} | {changes} | {spread(took)} | {said}", flush=True)


def stir(world: World, labels: list[str], draw: Random) -> int:
    """Do something to somebody, a hundred times in ten minutes."""
    for _ in range(100):
        world.run(draw.random() * 12.0)
        label = draw.choice(labels[1:])
        node = world.nodes[label]
        fit = node.running and not node.swim.left
        match draw.randrange(6):
            case 0:
                world.stop(label)
            case 1:
                world.resume(label)
            case 2:
                world.add(label, [labels[0]])
            case 3 if fit:
                world.act(label, lambda swim, now: swim.leave(now))
            case 4:
                world.part(draw.sample(labels, math.ceil(len(labels) / 3)))
            case _ if fit:
                world.act(label, registering(f"name-{draw.randrange(10)}"))
            case _:
                pass
    world.part()
    return 100


def at_peace(world: World) -> bool:
    """Everybody that runs and has not left is alive to everybody, nobody else is, and all else is the same too."""
    nodes = [node for node in world.running() if not node.swim.left]
    there = {node.swim.id for node in nodes}
    if any({m.id for m in node.swim.members() if m.state is State.ALIVE} != there for node in nodes):
        return False
    return world.agreed()


SCENARIOS: dict[str, Callable[[Sequence[int], range], None]] = {
    "detection": detection,
    "weather": weather,
    "partition": partition,
    "slow": slow,
    "joining": joining,
    "turmoil": turmoil,
}


if __name__ == "__main__":
    sys.exit(main())
