"""Whole clusters in simulated time: deaths in the formula's bounds, none that is false, one state everywhere after all.

The figures of larger worlds are in docs/membership.md (bench/swim_sim.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from ropeway.cluster.simulation import Weather, World, node_id, view
from ropeway.cluster.swim import LAN, WAN, Died, Forgotten, Joined, Member, Recovered, State, Suspected, Timing
from ropeway.cluster.swim.packets import PACKET_BYTES

ROUGH = Weather(loss=0.05, low_s=0.0, high_s=0.4)


def counts(world: World) -> Counter[str]:
    return Counter(type(event).__name__ for _, _, event in world.log)


def everywhere(world: World, label: str, state: State) -> bool:
    """Whether all running members believe this of a node."""
    return all(held is not None and held.state is state for held in views_of(world, label))


def views_of(world: World, label: str) -> list[Member | None]:
    return [node.swim.member(node_id(label)) for node in world.running()]


def test_the_same_seed_gives_the_same_hour() -> None:
    def run(seed: int) -> tuple[int, int, Counter[str]]:
        world = World(seed, WAN, ROUGH)
        world.grow(6)
        world.run(120.0)
        return world.traffic.packets, world.traffic.sent_bytes, counts(world)

    assert run(1) == run(1) != run(2)


HOUR = """
from ropeway.cluster.simulation import Weather, World
from ropeway.cluster.swim import LAN
world = World(1, LAN, Weather(loss=0.1, high_s=0.2))
labels = world.grow(8)
for label in labels:
    world.act(label, lambda swim, now: swim.register(now, "name-" + label))
world.part(labels[:3])
world.run(60.0)
world.part()
world.run(60.0)
print(world.traffic, len(world.log))
"""


def test_the_same_seed_gives_the_same_hour_in_another_process() -> None:
    told = set()
    for seed in ("1", "2", "3"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", HOUR], env=env, capture_output=True, text=True, timeout=60, check=True
        )
        told.add(done.stdout)
    assert len(told) == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("size", "timing", "weather"), [(3, LAN, Weather()), (12, LAN, Weather()), (12, WAN, ROUGH)])
def test_a_stopped_node_is_dead_within_the_formulas_bounds(
    seed: int, size: int, timing: Timing, weather: Weather
) -> None:
    world = World(seed, timing, weather)
    labels = world.grow(size)
    world.run(30.0)
    world.log.clear()
    world.stop(labels[1])
    began = world.now
    most_s = 2 * size * timing.probe_interval_s * timing.awareness_max + timing.suspicion_max_s(size)
    world.run_until(lambda: everywhere(world, labels[1], State.DEAD), most_s)
    about = [
        (at, type(event)) for at, _, event in world.log if getattr(event, "member", None) and of(event) == labels[1]
    ]
    suspected = min(at for at, kind in about if kind is Suspected)
    died = [at for at, kind in about if kind is Died]
    assert suspected - began <= (2 * (size - 1) + 1) * timing.probe_interval_s * timing.awareness_max
    assert timing.suspicion_min_s(size) - 0.001 <= min(died) - suspected <= timing.suspicion_max_s(size)
    assert max(died) - min(died) <= timing.suspicion_min_s(size)
    assert {of(event) for _, _, event in world.log if isinstance(event, Died)} == {labels[1]}


def of(event: object) -> str:
    assert isinstance(event, Died | Suspected | Recovered | Joined | Forgotten)
    return event.member.label


@pytest.mark.parametrize("seed", range(2))
def test_nobody_dies_of_loss_and_delay(seed: int) -> None:
    world = World(seed, WAN, ROUGH)
    world.grow(12)
    world.run(600.0)
    assert counts(world)["Died"] == 0
    world.run_until(world.agreed, 120.0)
    assert all(len(node.swim.living()) == 12 for node in world.running())
    assert world.traffic.largest <= PACKET_BYTES


def test_nobody_dies_of_rough_weather_with_lan_times_either() -> None:
    world = World(5, LAN, ROUGH)
    world.grow(8)
    world.run(120.0)
    assert counts(world)["Suspected"] > 0
    assert counts(world)["Died"] == 0


def test_a_slow_node_is_not_taken_for_a_dead_one_nor_takes_others_for_dead() -> None:
    world = World(1, WAN, Weather(high_s=0.05))
    labels = world.grow(10)
    world.nodes[labels[3]].lag_s = 2.0
    world.run(600.0)
    assert counts(world)["Died"] == 0


def test_a_node_that_stood_still_accuses_nobody_and_comes_back() -> None:
    world = World(1)
    labels = world.grow(8)
    world.act(labels[2], lambda swim, now: swim.register(now, "pp-entry"))
    world.run(5.0)
    world.log.clear()
    world.stop(labels[2])
    world.run_until(lambda: everywhere(world, labels[2], State.DEAD), 60.0)
    world.resume(labels[2])
    world.run(1.0)
    assert not [event for _, who, event in world.log if who == labels[2] and isinstance(event, Suspected | Died)]
    world.run_until(lambda: everywhere(world, labels[2], State.ALIVE) and world.agreed(), 30.0)
    assert all(node.swim.resolve("pp-entry") is not None for node in world.running())


def test_a_parted_cluster_lives_on_in_parts_and_heals() -> None:
    world = World(2)
    labels = world.grow(12)
    for label in labels:
        world.act(label, lambda swim, now, label=label: swim.register(now, f"name-{label}"))  # type: ignore[misc]
    world.run(5.0)
    few, many = labels[:4], labels[4:]
    world.part(few)
    sizes = {**dict.fromkeys(few, 4), **dict.fromkeys(many, 8)}
    world.run_until(lambda: all(len(node.swim.living()) == sizes[node.label] for node in world.running()), 200.0)
    assert len(world.nodes[few[0]].swim.names()) == 4
    world.run(2 * LAN.gossip_to_dead_s)
    world.log.clear()
    world.part()
    world.run_until(lambda: len(world.nodes[few[0]].swim.living()) == 12 and world.agreed(), 120.0)
    assert len(world.nodes[many[0]].swim.names()) == 12
    same_side = [e for _, who, e in world.log if isinstance(e, Died) and (who in few) == (e.member.label in few)]
    assert same_side == []


def test_members_that_come_all_at_once_know_each_other_soon() -> None:
    world = World(3)
    world.grow(1)
    world.grow(39, apart_s=0.0)
    took_s = world.run_until(lambda: all(len(node.swim.living()) == 40 for node in world.running()), 60.0)
    assert took_s <= LAN.push_pull_interval_s


@pytest.mark.parametrize("seed", range(3))
def test_after_any_turmoil_there_is_one_state(seed: int) -> None:
    world = World(seed, LAN, Weather(loss=0.05, high_s=0.05))
    labels = world.grow(12)
    draw = Random(seed)
    for _ in range(60):
        world.run(draw.random() * 4.0)
        label = draw.choice(labels[1:])
        node = world.nodes[label]
        match draw.randrange(6):
            case 0:
                world.stop(label)
            case 1 if not node.running:
                world.resume(label)
            case 2:
                world.add(label, [labels[0]])
            case 3 if node.running and not node.swim.left:
                world.act(label, lambda swim, now: swim.leave(now))
            case 4:
                world.part(draw.sample(labels, 4))
            case _:
                if node.running and not node.swim.left:
                    world.act(label, lambda swim, now: swim.register(now, f"name-{draw.randrange(5)}"))
    world.part()
    world.run_until(lambda: world.agreed() and settled(world), 300.0)
    living = {node.label for node in world.running() if not node.swim.left}
    assert {member.label for member in world.nodes[labels[0]].swim.living()} == living


def settled(world: World) -> bool:
    """Nobody is suspected, and everybody that runs is alive to everybody."""
    nodes = [node for node in world.running() if not node.swim.left]
    there = {node.swim.id for node in nodes}
    return all({m.id for m in node.swim.members() if m.state is State.ALIVE} == there for node in nodes)


def test_the_dead_are_forgotten_everywhere_and_stay_so() -> None:
    world = World(4, Timing(forget_s=120.0, tombstone_s=60.0))
    labels = world.grow(6)
    world.act(labels[2], lambda swim, now: swim.register(now, "gone"))
    world.run(2.0)
    world.act(labels[2], lambda swim, now: swim.unregister(now, "gone"))
    world.stop(labels[1])
    world.run(60.0)
    assert everywhere(world, labels[1], State.DEAD)
    world.run(120.0)
    world.log.clear()
    world.run(120.0)
    assert views_of(world, labels[1]) == [None] * 5
    assert world.agreed()
    assert counts(world) == {}
    assert len({view(node.swim) for node in world.running()}) == 1
