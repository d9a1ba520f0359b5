"""`ropeway run` with children of its own: one of them or rank 0 is killed, stopped or interrupted in mid-reply."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from end_to_end.by_hand import LONG
from end_to_end.processes import Process, Yard, child_of_rank, is_alive, kill, wait_until
from end_to_end.test_faults import KILLED_S, STOPPED_S
from ropeway.launch.placement import Options, place
from ropeway.launch.rank0 import open_local
from ropeway.transport import RingLost

pytestmark = pytest.mark.timeout(240)


@dataclass(slots=True)
class LocalRing:
    """A reply that streams from a local ring: rank 0's process, and every rank's process id."""

    rank0: Process
    pids: dict[int, int]
    before: str
    began: float = 0.0
    alone_at: float = 0.0
    """When rank 0 was the last that was left (time.monotonic), once `watch` has seen that."""

    def hit(self, rank: int, number: signal.Signals) -> None:
        """Signal a rank."""
        self.began = time.monotonic()
        kill(self.pids[rank], number)

    def watch(self) -> None:
        """Note when every other rank is gone."""
        wait_until(lambda: self.left() == [0])
        self.alone_at = time.monotonic()

    def left(self) -> list[int]:
        """Ranks whose processes live."""
        return [rank for rank, pid in self.pids.items() if is_alive(pid)]

    def check_lost(self, rank: int, limit_s: float, word: str) -> None:
        """Rank 0 has ended in time, has named the rank, has kept what it had printed, and has left nobody behind."""
        rank0 = self.rank0
        assert rank0.status() == 70, rank0.said()
        left = self.left()
        assert rank0.ended_at - self.began < limit_s, rank0.said()
        assert not left
        assert f"rank {rank} (" in rank0.err.splitlines()[-1], rank0.said()
        assert word in rank0.err.splitlines()[-1], rank0.said()
        assert "Traceback" not in rank0.err
        assert rank0.out.startswith(self.before)
        assert rank0.out.endswith("\n")

    def check_orphans(self, limit_s: float) -> None:
        """Rank 0 is gone or stopped: the others end by themselves, in time."""
        wait_until(lambda: not self.left(), self.began + limit_s - time.monotonic())


def stream(yard: Yard, small: str, *more: str, world: int = 3) -> LocalRing:
    """A long reply that has begun."""
    rank0 = yard.ropeway("run", small, "hello", "--stages", str(world), *LONG, *more)
    rank0.until(lambda rank0: len(rank0.out) > 20)
    pids = {0: rank0.pid, **{rank: child_of_rank(rank0, rank) for rank in range(1, world)}}
    return LocalRing(rank0, pids, rank0.out)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, small: str) -> Iterator[dict[int, LocalRing]]:
    """One ring for each rank, with that rank stopped, side by side, while other tests run."""
    yard = Yard(tmp_path_factory.mktemp("stopped"))
    cases: dict[int, LocalRing] = {}
    try:
        for rank in (0, 1, 2):
            cases[rank] = stream(yard, small)
            cases[rank].hit(rank, signal.SIGSTOP)
        threading.Thread(target=cases[0].watch, name="watches for orphans", daemon=True).start()
        yield cases
    finally:
        yard.end()


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("rank", [1, 2])
def test_a_killed_child_ends_the_reply(yard: Yard, small: str, rank: int) -> None:
    ring = stream(yard, small)
    ring.hit(rank, signal.SIGKILL)
    ring.check_lost(rank, KILLED_S, "was killed by SIGKILL")


def test_children_do_not_outlive_a_killed_rank_0(yard: Yard, small: str) -> None:
    ring = stream(yard, small)
    ring.hit(0, signal.SIGKILL)
    ring.check_orphans(KILLED_S)


def test_a_child_that_is_stopped_for_a_moment_does_no_harm(yard: Yard, small: str) -> None:
    ring = stream(yard, small, world=2)
    ring.hit(1, signal.SIGSTOP)
    length = len(ring.rank0.out)
    wait_until(lambda: time.monotonic() > ring.began + 1.5)
    ring.hit(1, signal.SIGCONT)
    ring.rank0.until(lambda rank0: len(rank0.out) > length + 200)
    assert not ring.rank0.err


@pytest.mark.parametrize(("number", "status", "said"), [("INT", 130, "interrupted"), ("TERM", 143, "terminated")])
def test_an_interrupted_reply_takes_its_children_along(
    yard: Yard, small: str, number: str, status: int, said: str
) -> None:
    ring = stream(yard, small, world=2)
    for pid in ring.pids.values() if number == "INT" else [ring.rank0.pid]:  # Ctrl-C reaches all of a terminal's group
        kill(pid, signal.Signals[f"SIG{number}"])
    assert ring.rank0.status() == status
    assert not ring.left()
    assert ring.rank0.err == f"ropeway: {said}\n"
    assert ring.rank0.out.startswith(ring.before)
    assert ring.rank0.out.endswith("\n")


def test_a_reader_that_has_had_enough_ends_the_reply_without_noise(yard: Yard, small: str) -> None:
    """As `ropeway run ... | head -c 20` does."""
    command = [sys.executable, "-m", "ropeway", "run", small, "hello", *LONG]
    pipe = "import subprocess, sys\nrun = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)\n"
    pipe += "print(len(run.stdout.read(20)), flush=True)\nrun.stdout.close()\nsys.exit(run.wait())"
    reader = yard.start([sys.executable, "-c", pipe, *command])
    assert reader.status() == 1
    assert reader.out == "20\n"
    assert not reader.err


def test_a_child_that_cannot_start_ends_bring_up_at_once(small: str) -> None:
    placement = place(Options(small, stages=3))
    broken = replace(placement, options=replace(placement.options, model="/nowhere/model.gguf"))
    started = time.monotonic()
    with pytest.raises(RingLost) as caught, open_local(broken):
        pass
    assert time.monotonic() - started < 30  # bring-up would wait for 60 s
    assert "has ended with exit status 1: " in caught.value.text
    assert "/nowhere/model.gguf" in caught.value.text


def test_children_do_not_outlive_a_stopped_rank_0(stopped: dict[int, LocalRing]) -> None:
    ring = stopped[0]
    wait_until(lambda: bool(ring.alone_at))
    assert ring.alone_at - ring.began < STOPPED_S


@pytest.mark.parametrize("rank", [1, 2])
def test_a_stopped_child_ends_the_reply_and_is_not_left_behind(stopped: dict[int, LocalRing], rank: int) -> None:
    stopped[rank].check_lost(rank, STOPPED_S, "has said nothing for 6 s")
