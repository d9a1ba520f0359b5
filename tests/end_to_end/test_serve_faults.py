"""`ropeway serve` while ranks are killed and stopped under its streams, and while it is told to stop itself."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from end_to_end.by_hand import HandRing, free_addresses
from end_to_end.processes import LIMIT_S, Yard, children, is_alive, kill, wait_until
from end_to_end.serving_process import SETTINGS, Server, Stream
from end_to_end.test_faults import KILLED_S, STOPPED_S

pytestmark = pytest.mark.timeout(240)


@dataclass(slots=True)
class Loss:
    """A server under whose streams a process was signalled, when that was, and what a short reply was before."""

    server: Server
    streams: list[Stream]
    began: float
    pids: list[int]
    text: str


def lose(server: Server, streams: int, rank: int, number: signal.Signals) -> Loss:
    """Signal a rank while so many streams run."""
    server.become_ready()
    before = server.complete(40)
    assert before.status == 200
    running = server.streams(streams)
    pids = server.family()
    began = time.monotonic()
    kill([server.process.pid, *pids][rank], number)
    return Loss(server, running, began, pids, before.body["choices"][0]["text"])


@pytest.fixture(scope="module")
def stage_stopped(tmp_path_factory: pytest.TempPathFactory, small: str) -> Iterator[Loss]:
    """It takes 6 s to be noticed, during other tests. The server comes back again and again; SIGTERM ends it."""
    yard = Yard(tmp_path_factory.mktemp("server"))
    try:
        yield lose(Server(yard, small, "--drain", "1", stages=3), 3, 2, signal.SIGSTOP)
    finally:
        yard.end()


@pytest.fixture(scope="module")
def rank_0_stopped(tmp_path_factory: pytest.TempPathFactory, small: str) -> Iterator[Loss]:
    """Its ranks take 6 s to notice, during other tests. Ctrl-C ends the server."""
    yard = Yard(tmp_path_factory.mktemp("paused"))
    try:
        yield lose(Server(yard, small, "--drain", "0"), 2, 0, signal.SIGSTOP)
    finally:
        yard.end()


def check_cut_off(streams: list[Stream], rank: int, began: float, limit_s: float) -> None:
    """Each has ended in time with an error event that names the rank, and with no finish."""
    for stream in streams:
        assert stream.ended.wait(LIMIT_S)
        assert f"rank {rank} (" in stream.error, stream.events[-1]
        assert stream.events[-1][0] - began < limit_s
        assert not stream.finishes
        assert not stream.said_done
        assert stream.text


def check_comes_back(loss: Loss, rank: int) -> None:
    """Nobody is served until the ring is whole again, /ready and the rest agree on that, and then all is as before."""
    server = loss.server
    # Bring-up starts processes, so there is time to look.
    assert not server.is_ready()
    assert server.complete().is_unavailable
    assert server.ask("GET", "/health").status == 200
    assert f"rank {rank} (" in server.ask("GET", "/v1/ring").body["detail"]
    answers = []
    while not server.is_ready():
        answers.append(server.complete())
        assert server.process.running
    refused = [answer.is_unavailable for answer in answers]
    assert all(refused[:-1])  # it may have become ready between the last two questions
    after = server.complete(40)
    assert after.status == 200
    assert after.body["choices"][0]["finish_reason"] == "length"
    assert after.body["choices"][0]["text"] == loss.text
    assert not [pid for pid in loss.pids if is_alive(pid)]


@pytest.mark.usefixtures("stage_stopped", "rank_0_stopped")
def test_told_to_stop_during_bring_up(yard: Yard, small: str) -> None:
    server = Server(yard, small)
    assert not server.is_ready()
    wait_until(lambda: bool(children(server.process.pid)))
    pids = [child.pid for child in children(server.process.pid)]
    server.process.signal(signal.SIGTERM)
    assert server.process.status() == 0, server.process.said()
    assert not [pid for pid in pids if is_alive(pid)]
    assert "Traceback" not in server.process.err


def test_told_to_stop_while_it_waits_for_other_machines(yard: Yard, small: str) -> None:
    with free_addresses(2) as addresses:
        ring = HandRing(yard, small, addresses)
        rank0 = yard.ropeway("serve", small, "--port", "0", *SETTINGS, *ring.flags())
        rank0.until(lambda rank0: "http://" in rank0.err)
        began = rank0.signal(signal.SIGTERM)
        assert rank0.status() == 0
        assert rank0.ended_at - began < 5
        assert "Traceback" not in rank0.err


def test_a_ring_over_several_machines_is_served_again(yard: Yard, small: str) -> None:
    """Rank 0 goes on; whoever runs the other machine starts its stage again."""
    with free_addresses(2) as addresses:
        ring = HandRing(yard, small, addresses)
        stage_flags = ("--context", "8192", "--parallel", "4")
        server = Server(yard, small, *ring.flags())
        first = ring.stage(1, *stage_flags)
        server.become_ready()
        streams = server.streams(1)
        check_cut_off(streams, 1, first.signal(signal.SIGKILL), KILLED_S)
        assert not server.is_ready()
        second = ring.stage(1, *stage_flags)
        server.become_ready()
        assert server.complete().status == 200
        server.process.signal(signal.SIGTERM)
        assert (server.process.status(), second.status()) == (0, 0)


def test_a_stopped_stage_ends_the_streams_in_time(stage_stopped: Loss) -> None:
    check_cut_off(stage_stopped.streams, 2, stage_stopped.began, STOPPED_S)
    stage_stopped.server.become_ready()


def test_a_killed_stage_ends_the_streams_and_comes_back(stage_stopped: Loss) -> None:
    loss = lose(stage_stopped.server, 3, 1, signal.SIGKILL)
    check_cut_off(loss.streams, 1, loss.began, KILLED_S)
    check_comes_back(loss, 1)
    assert loss.text == stage_stopped.text


def test_told_to_stop_in_the_middle_of_streams(stage_stopped: Loss) -> None:
    server = stage_stopped.server
    server.become_ready()
    long, short = server.streams(1)[0], Stream(server.port, 30)
    wait_until(lambda: bool(short.events))
    server.process.signal(signal.SIGTERM)
    assert server.process.status() == 0, server.process.said()
    assert long.ended.wait(LIMIT_S)
    assert "the server is being stopped" in long.error
    assert not long.finishes
    assert short.ended.wait(LIMIT_S)
    assert (short.finishes, short.said_done) == (["length"], True) or "being stopped" in short.error
    assert not server.left()
    assert "Traceback" not in server.process.err


def test_a_rank_0_that_was_stopped_comes_back_too(rank_0_stopped: Loss) -> None:
    server = rank_0_stopped.server
    wait_until(lambda: not server.left(), STOPPED_S)
    began = server.process.signal(signal.SIGCONT)
    check_cut_off(rank_0_stopped.streams, 0, began, KILLED_S)
    server.become_ready()
    assert server.complete().status == 200


def test_a_rank_lost_while_idle_and_one_lost_in_bring_up_come_back(rank_0_stopped: Loss) -> None:
    server = rank_0_stopped.server
    server.become_ready()
    old = server.family()
    kill(old[0], signal.SIGKILL)
    wait_until(lambda: not server.is_ready(), KILLED_S)
    fresh: list[int] = []

    def restarts() -> bool:
        fresh[:] = [pid for pid in server.family() if pid not in old]
        return bool(fresh)

    wait_until(restarts)
    kill(fresh[0], signal.SIGKILL)
    server.become_ready()
    assert server.complete().status == 200


def test_ctrl_c_takes_the_ranks_along(rank_0_stopped: Loss) -> None:
    server = rank_0_stopped.server
    server.become_ready()
    stream = server.streams(1)[0]
    for pid in (*server.family(), server.process.pid):  # Ctrl-C reaches all of a terminal's group
        kill(pid, signal.SIGINT)
    assert server.process.status() == 0
    assert stream.ended.wait(LIMIT_S)
    assert "the server is being stopped" in stream.error
    assert not server.left()
    assert "Traceback" not in server.process.err
