"""What a cluster of three hosts must show; run by `test_hosts.py`, each in a network namespace of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cluster.asking import Server, Stream, Watcher
from cluster.hosts import Host, Village
from cluster.strangers import FLOOD
from end_to_end.processes import LIMIT_S, Process, is_alive, processes, wait_until
from ropeway.cluster.ticket import Ticket
from ropeway.transport.iroh.switchboard import MOST_UNPROVED
from tiny_gguf import TinyModel, write_tiny

pytestmark = pytest.mark.timeout(220)


class Cluster:
    """Three nodes that know each other, and the ticket of the first."""

    def __init__(self, village: Village, *more: str) -> None:
        self.village = village
        self.agents: dict[str, Process] = {}
        first, *others = village.hosts
        self.agents[first.name] = up = village.node(first, "", *more)
        up.until(lambda process: "ropeway1" in process.out)
        self.ticket = up.out.split()[-1]
        for host in others:
            self.agents[host.name] = village.node(host, self.ticket, *more)
        for host in others:
            self.up(host)

    def up(self, host: Host) -> None:
        """Wait until a host's agent is up."""
        self.agents[host.name].until(lambda process: "is up" in process.err)

    def again(self, host: Host) -> None:
        """Start a host's agent again, which goes back to the cluster of last time."""
        self.agents[host.name] = self.village.node(host, "")
        self.up(host)


FAR = (0.06, 0.01)
"""Seconds one way, and the share of packets that are lost, between hosts that are far apart."""


@pytest.fixture
def village(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Village]:
    directory = tmp_path / "model"
    directory.mkdir()
    model = write_tiny(directory / "small.gguf", TinyModel(layers=6))
    here = Village(tmp_path, 3, str(model), getattr(request, "param", None))
    try:
        yield here
    finally:
        here.close()


def has_ended(pid: int) -> bool:
    """Whether a process is gone."""
    return not is_alive(pid)


def ranks_of(agent: Process) -> list[int]:
    """The ranks that an agent runs."""
    return [seen.pid for seen in processes() if seen.parent == agent.pid and "ropeway.launch.child" in seen.args]


def left(village: Village) -> list[int]:
    """Ranks on these hosts that no agent holds, or that are stopped."""
    here = [seen for seen in processes() if village.has(seen.pid)]
    agents = {seen.pid for seen in here if {"up", "node"} & set(seen.args)}
    ranks = [seen for seen in here if "ropeway.launch.child" in seen.args]
    return [seen.pid for seen in ranks if seen.parent not in agents or seen.state == "T"]


def lost(server: Server, stream: Stream, began: float, what: str) -> None:
    """A stream ends by an error event and nothing else, and the server comes back; meanwhile no request hangs, and
    /ready is true."""
    with Watcher(server):
        assert stream.ended.wait(LIMIT_S), server.process.said()
        assert (stream.error, stream.finish, stream.said_done) == ("ring_unavailable", "", False), server.process.said()
        told_s = stream.ended_at - began
        server.wait()
        again_s = time.monotonic() - began
    print(f"{what}: the client heard of it after {told_s:.1f} s, serving again after {again_s:.1f} s")


def test_one_command_on_each_and_an_answer(village: Village) -> None:
    cluster = Cluster(village)
    first, *_ = village.hosts
    server = Server(village, first, 3)
    server.wait()
    assert sorted(server.nodes()) == ["host0", "host1", "host2"]
    before = server.complete()
    assert before.status == 200
    beside = Server(village, first, 3, local=True)
    beside.wait()
    assert beside.logprobs() == server.logprobs()  # over TCP and over iroh: the same bits
    beside.process.signal(signal.SIGTERM)
    listed = village.ropeway(first, "nodes")
    assert listed.status() == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == ["host0", "host1", "host2"]

    # Drained: running replies go on to their end, then the ring is placed again without the node.
    assert village.ropeway(first, "drain", "host2").status() == 0
    server.wait(ready=False)
    server.wait()
    assert sorted(server.nodes()) == ["host0", "host1"]
    assert server.complete().text == before.text
    assert not ranks_of(cluster.agents["host2"])

    # Terminated: the ranks end, and the nodes are free.
    server.process.signal(signal.SIGTERM)
    assert server.process.status() == 0
    wait_until(lambda: not any(ranks_of(agent) for agent in cluster.agents.values()))
    assert village.ropeway(first, "down", "--all").status() == 0
    assert [agent.status() for agent in cluster.agents.values()] == [0, 0, 0]
    assert not left(village)
    assert not any(host.ports() for host in village.hosts)


def test_nodes_that_do_not_have_the_model(village: Village) -> None:
    model = Path(village.model)
    for host in village.hosts[1:]:
        host.hide(model.parent)
    cluster = Cluster(village)
    server = Server(village, village.hosts[0], 3)
    server.wait()
    text = server.complete().text
    for host in village.hosts[1:]:
        assert (village.cache(host) / "fetched").is_dir()
        [piece] = (village.cache(host) / "slices").rglob("*.gguf")
        assert 0 < piece.stat().st_size < model.stat().st_size
    fetched = {kept: kept.stat().st_ino for kept in village.cache(village.hosts[1]).rglob("*.gguf")}

    # Placed again by itself after a loss, a node goes on with what it has, and fetches what it has not.
    [victim] = ranks_of(cluster.agents["host2"])
    stream, began = server.stream(), time.monotonic()
    os.kill(victim, signal.SIGKILL)
    lost(server, stream, began, "a killed rank of a node that had fetched")
    assert server.complete().text == text
    assert (
        fetched.items()
        <= {kept: kept.stat().st_ino for kept in village.cache(village.hosts[1]).rglob("*.gguf")}.items()
    )


def test_a_node_whose_disk_is_full(village: Village) -> None:
    first, second, third = village.hosts
    for host in (second, third):
        host.hide(Path(village.model).parent)
    village.cache(second).mkdir()
    second.hide(village.cache(second), "16k")
    Cluster(village)
    server = Server(village, first, 3)
    server.wait()
    assert server.nodes() == ["host0", "host2"]
    assert server.complete().status == 200
    assert "the disk is too full" in server.process.err
    assert "host1" in server.process.err
    assert not left(village)


def test_ranks_killed_and_stopped(village: Village) -> None:
    cluster = Cluster(village)
    server = Server(village, village.hosts[0], 3)
    for number, what in ((signal.SIGKILL, "a killed rank"), (signal.SIGSTOP, "a stopped rank")):
        server.wait()
        text = server.complete().text
        stream = server.stream()
        [victim] = ranks_of(cluster.agents["host1"])
        began = time.monotonic()
        os.kill(victim, number)
        lost(server, stream, began, what)
        assert server.complete().text == text
        wait_until(partial(has_ended, victim))
    assert sorted(server.nodes()) == ["host0", "host1", "host2"]
    assert not left(village)


def test_replies_that_go_on(village: Village) -> None:
    cluster = Cluster(village)
    server = Server(village, village.hosts[0], 3, "--resume", "same-backend")
    server.wait()
    text = server.complete(900).text
    stream, began = server.stream(900), time.monotonic()
    [victim] = ranks_of(cluster.agents["host1"])
    os.kill(victim, signal.SIGKILL)
    server.wait(ready=False)
    cluster.agents["host2"].signal(signal.SIGKILL)
    server.wait()
    assert stream.ended.wait(LIMIT_S), server.process.said()
    assert (stream.error, stream.finish, stream.said_done) == ("", "length", True), server.process.said()
    assert stream.text == text
    assert server.nodes() == ["host0", "host1"]
    print(f"a killed rank and a killed agent: the reply went on, and ended after {time.monotonic() - began:.1f} s")


def test_an_agent_killed_and_come_back(village: Village) -> None:
    cluster = Cluster(village)
    server = Server(village, village.hosts[0], 3)
    server.wait()
    text = server.complete().text
    stream = server.stream()
    [orphan] = ranks_of(cluster.agents["host2"])
    began = cluster.agents["host2"].signal(signal.SIGKILL)
    lost(server, stream, began, "a killed agent")
    assert server.nodes() == ["host0", "host1"]
    assert server.complete().text == text
    wait_until(lambda: not is_alive(orphan))

    # It comes back, changes nothing, and is used when the ring is placed next.
    cluster.again(village.hosts[2])
    assert server.nodes() == ["host0", "host1"]
    [victim] = ranks_of(cluster.agents["host1"])
    stream, began = server.stream(), time.monotonic()
    os.kill(victim, signal.SIGKILL)
    lost(server, stream, began, "a killed rank, and a node that has come back")
    assert sorted(server.nodes()) == ["host0", "host1", "host2"]
    assert not left(village)


def test_a_cable_pulled(village: Village) -> None:
    cluster = Cluster(village)
    server = Server(village, village.hosts[0], 3)
    server.wait()
    text = server.complete().text
    stream, began = server.stream(), time.monotonic()
    victims = ranks_of(cluster.agents["host1"])
    village.hosts[1].cable("down")
    lost(server, stream, began, "a pulled cable")
    assert server.nodes() == ["host0", "host2"]
    assert server.complete().text == text
    wait_until(lambda: not any(map(is_alive, victims)))
    village.hosts[1].cable("up")
    wait_until(lambda: "host1" in alive(village), LIMIT_S, server.process.said)
    assert not left(village)


def test_two_at_once_and_no_room(village: Village) -> None:
    cluster = Cluster(village, "--memory-mb", "12")
    server = Server(village, village.hosts[0], 3)
    server.wait()
    stream, began = server.stream(), time.monotonic()
    for name in ("host1", "host2"):
        cluster.agents[name].signal(signal.SIGKILL)
    assert stream.ended.wait(LIMIT_S)
    assert stream.error == "ring_unavailable"
    told_s = stream.ended_at - began

    # One node cannot hold it: /ready says which are missing, every request is told, and it comes back with them.
    def told() -> bool:
        answer = server.ask("GET", "/ready")
        assert answer.status == 503
        return "does not fit" in answer.detail and "host1" in answer.detail and "host2" in answer.detail

    wait_until(told, LIMIT_S, server.process.said)
    with Watcher(server):
        for host in village.hosts[1:]:
            cluster.agents[host.name] = village.node(host, "", "--memory-mb", "12")
        server.wait()
    again_s = time.monotonic() - began
    print(f"two killed agents, started again: the client heard of it after {told_s:.1f} s, ", end="")
    print(f"serving again after {again_s:.1f} s")
    assert server.complete().status == 200


def test_the_one_who_serves_is_killed(village: Village) -> None:
    cluster = Cluster(village)
    server = Server(village, village.hosts[0], 3)
    server.wait()
    server.stream()
    server.process.signal(signal.SIGKILL)
    wait_until(lambda: not any(ranks_of(agent) for agent in cluster.agents.values()))
    assert not left(village)

    # Its agent is killed: it cannot serve, and comes back with it.
    server = Server(village, village.hosts[0], 2)
    server.wait()
    stream = server.stream()
    cluster.agents["host0"].signal(signal.SIGKILL)
    assert stream.ended.wait(LIMIT_S)
    assert stream.error == "ring_unavailable"
    server.wait(ready=False)
    cluster.again(village.hosts[0])
    server.wait()
    assert server.complete().status == 200
    assert not left(village)


def test_an_agent_stopped(village: Village) -> None:
    cluster = Cluster(village)
    server = Server(village, village.hosts[0], 3)
    server.wait()
    text = server.complete().text
    stream = server.stream()
    victims = ranks_of(cluster.agents["host1"])
    began = cluster.agents["host1"].signal(signal.SIGSTOP)
    lost(server, stream, began, "a stopped agent")
    assert server.nodes() == ["host0", "host2"]
    assert server.complete().text == text
    wait_until(lambda: all(map(has_ended, victims)))
    cluster.agents["host1"].signal(signal.SIGCONT)
    wait_until(lambda: "host1" in alive(village), LIMIT_S, server.process.said)
    assert server.complete().text == text
    assert not left(village)


def test_who_is_not_let_in(village: Village) -> None:
    first, second, third = village.hosts
    up = village.node(first)
    up.until(lambda process: "ropeway1" in process.out)
    ticket = Ticket.parse(up.out.split()[-1])
    village.node(second, ticket.text()).until(lambda process: "is up" in process.err)

    other = village.node(third, replace(ticket, key=bytes(32)).text())
    assert other.status() == 1
    assert "wrong_cluster" in other.err
    assert bytes(32).hex() not in other.said()
    twin = village.ropeway(third, "node", "--label", "host1", "--relays", "none", ROPEWAY_TICKET=ticket.text())
    assert twin.status() == 1
    assert "label_taken" in twin.err
    damaged = village.node(third, ticket.text()[:-1])
    assert damaged.status() == 2
    assert "it is damaged" in damaged.err
    nobody = village.node(third, replace(ticket, node="ab" * 32).text())
    assert nobody.status() == 1
    assert "did not let us in" in nobody.err or "cannot be reached" in nobody.err

    assert alive(village) == ["host0", "host1"]
    assert ticket.key.hex() not in up.said()
    assert not any(ticket.text() in seen.args for seen in processes())


def test_strangers_while_it_serves(village: Village) -> None:
    cluster = Cluster(village)
    server = Server(village, village.hosts[0], 3)
    server.wait()
    text = server.complete().text
    listed = village.ropeway(village.hosts[0], "nodes", "--json")
    assert listed.status() == 0
    nodes = json.loads(listed.out)["nodes"]
    [member] = [node["node"] for node in nodes if node["label"] == "host1"]

    stream = server.stream()
    with Watcher(server, losses=0):
        strangers = village.strangers(village.hosts[2], cluster.ticket, member)
        assert strangers.status() == 0, strangers.said()
    told = json.loads(strangers.out)
    silent, turned_away = told.pop("late"), told.pop("turned away")
    assert told == {"wrong_cluster": 1, "wrong_key": 2, "bad_seal": 2}
    assert silent <= MOST_UNPROVED
    assert silent + turned_away == FLOOD
    assert stream.error == "", server.process.said()
    for name in ("wrong_cluster", "wrong_key", "bad_seal"):
        assert name in cluster.agents["host0"].err

    assert server.is_ready()
    listed = village.ropeway(village.hosts[0], "nodes", "--json")
    assert listed.status() == 0
    after = json.loads(listed.out)["nodes"]
    told_before, told_after = ([(one["node"], one["state"], one["names"]) for one in seen] for seen in (nodes, after))
    assert told_after == told_before
    assert server.complete().text == text


@pytest.mark.parametrize("village", [FAR], indirect=True, ids=["120ms"])
def test_far_apart(village: Village) -> None:
    cluster = Cluster(village, "--wan")
    server = Server(village, village.hosts[0], 3)
    server.wait()
    text = server.complete().text
    assert server.complete().text == text
    stream = server.stream()
    [victim] = ranks_of(cluster.agents["host1"])
    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    lost(server, stream, began, "a killed rank, 120 ms away")
    assert server.complete().text == text
    assert sorted(alive(village)) == ["host0", "host1", "host2"]


def alive(village: Village) -> list[str]:
    """The nodes that the first host's agent takes for alive."""
    listed = village.ropeway(village.hosts[0], "nodes")
    assert listed.status() == 0, listed.said()
    return [line.split()[0] for line in listed.out.splitlines() if " alive" in line]
