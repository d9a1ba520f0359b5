"""What two replicas on a Ray cluster of four hosts must show; run by `test_ray.py` in a namespace of its own."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.asking import Stream
from end_to_end.processes import wait_until
from launch.ray_hosts import KEY, PATIENCE_S, Rank, RayServer, RayVillage
from tiny_gguf import TinyModel, write_tiny

pytestmark = pytest.mark.timeout(600)

MEANWHILE = 20
"""Requests that are asked while a replica is gone."""


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayVillage]:
    directory = tmp_path_factory.mktemp("village")
    here = RayVillage(directory, str(write_tiny(directory / "small.gguf", TinyModel(layers=6))), (1, 1, 1, 2))
    try:
        yield here
    finally:
        here.close()


@pytest.fixture
def server(village: RayVillage) -> Iterator[RayServer]:
    """Both replicas are ready, so what was there before has given everything back."""
    began = time.monotonic()
    server = RayServer(village)
    try:
        server.wait_for(2)
        print(f"a fresh start: two replicas ready after {time.monotonic() - began:.1f} s")
        hosts = [rank.host.name for rank in village.ranks()]
        assert sorted(hosts) == sorted(host.name for host in village.hosts), "one rank on each"
        yield server
    finally:
        server.process.end()
        village.wait_for_none()


def away(village: RayVillage, number: int) -> Rank:
    """A rank of the replica that has none on the first host, where Ray's head and the server are."""
    ranks = village.ranks()
    here = {rank.ring for rank in ranks if rank.host is village.hosts[0]}
    return next(rank for rank in ranks if rank.ring not in here and rank.rank == number)


def lose(village: RayVillage, server: RayServer, rank: Rank, how: str) -> float:
    """Lose a rank's host, under load: who was on it hears of that, and the rest goes on. Gives the time of the loss."""
    streams = [server.stream(), server.stream()]
    text = server.complete().text
    lost_at = time.monotonic()
    if how == "a pulled cable":
        rank.host.cable("down")
    else:
        village.kill(rank.host)
    wait_until(lambda: any(stream.ended.is_set() for stream in streams), said=server.process.said)
    ended, other = sorted(streams, key=lambda stream: not stream.ended.is_set())
    assert (ended.error, ended.finish, ended.said_done) == ("ring_unavailable", "", False)
    took = []
    for _ in range(MEANWHILE):
        began = time.monotonic()
        answer = server.complete()
        took.append(time.monotonic() - began)
        assert (answer.status, answer.text) == (200, text)
        assert len(server.replicas()) >= 1
    goes_on(other)
    print(f"{how}: the client heard of it after {ended.ended_at - lost_at:.1f} s")
    print(f"{how}: {MEANWHILE} of {MEANWHILE} requests answered meanwhile, the slowest in {max(took):.2f} s")
    return lost_at


def goes_on(stream: Stream) -> None:
    """More comes of a stream, or it has come to its good end."""
    seen = stream.pieces
    wait_until(lambda: stream.pieces > seen or stream.ended.is_set())
    assert not stream.error


def secrets_of(village: RayVillage) -> set[bytes]:
    """The keys that the ranks were given, and the client's."""
    found = {KEY.encode()}
    for rank in village.ranks():
        for number in re.findall(r"/dev/fd/(\d+)", " ".join(rank.seen.args)):
            found.add(Path(f"/proc/{rank.seen.pid}/fd/{number}").read_bytes().strip())
    return found


def test_a_killed_node(village: RayVillage, server: RayServer) -> None:
    cuts = sorted(re.findall(r"cut at (\d+)", server.process.err))
    assert cuts == ["3", "4"], "two CPUs have two thirds"
    secrets = secrets_of(village)
    assert len(secrets) == 5, "a key for each ring, one for each of their doors, and the client's"
    lost = away(village, 1)
    lose(village, server, lost, "a killed node")
    wait_until(lambda: not [rank for rank in village.ranks() if rank.ring == lost.ring], PATIENCE_S)
    server.process.until(lambda process: "2 ranks need 2 nodes" in process.err)

    back_at = time.monotonic()
    village.start_node(lost.host)
    village.up(lost.host)
    up_at = time.monotonic()
    server.wait_for(2)
    print(f"a node that is back: Ray is up after {up_at - back_at:.1f} s")
    print(f"a node that is back: two replicas ready after another {time.monotonic() - up_at:.1f} s")

    for host in village.hosts:
        for seen in village.on(host):
            assert not any(secret.decode() in " ".join(seen.args) for secret in secrets), seen
    for _, path in village.logs():
        text = path.read_bytes()
        assert not any(secret in text for secret in secrets), path
    assert not any(secret.decode() in server.process.err for secret in secrets)

    told_at = server.process.signal(signal.SIGINT)
    assert server.process.status(PATIENCE_S) == 0
    village.wait_for_none()
    print(f"Ctrl-C: ended after {server.process.ended_at - told_at:.1f} s")


def test_a_pulled_cable_and_a_killed_driver(village: RayVillage, server: RayServer) -> None:
    listening = {address.rpartition(":")[2] for rank in village.ranks() for address in rank.ring.split(",")}
    lost = away(village, 0)
    lose(village, server, lost, "a pulled cable")

    killed_at = server.process.signal(signal.SIGKILL)
    server.process.status()
    wait_until(lambda: all(rank.host is lost.host for rank in village.ranks()), PATIENCE_S)
    print(f"a killed driver: no rank left after {time.monotonic() - killed_at:.1f} s")
    lost.host.cable("up")
    village.wait_for_none()
    for host in village.hosts:
        for line in host_sockets(host.pid):
            assert line not in listening


def host_sockets(pid: int) -> list[str]:
    """The ports that are listened at on a host."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [str(int(row[1].rpartition(":")[2], 16)) for row in rows if row[3] == "0A"]
