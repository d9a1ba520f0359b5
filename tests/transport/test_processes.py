"""Ranks as real processes: one is killed or stopped, and every other one ends in time and names it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ropeway.transport import tcp

HERE = Path(__file__).parent
KILLED_S = 2.0
"""Every other rank has ended by then (it takes about 0.25 s on a machine that is not busy)."""
STOPPED_S = 8.0


class Rank:
    """One child."""

    def __init__(self, setup: dict[str, Any], listener: int) -> None:
        self.rank = int(setup["rank"])
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "rank_process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[listener],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path]), "PYTHONWARNINGS": "error"},
            text=True,
        )
        self.lines: queue.SimpleQueue[tuple[float, dict[str, Any]]] = queue.SimpleQueue()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({**setup, "listener": listener}) + "\n")
        self.process.stdin.close()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), json.loads(line)))

    def line(self, timeout_s: float = 30.0) -> tuple[float, dict[str, Any]]:
        """When the next line came, and what it says."""
        return self.lines.get(timeout=timeout_s)

    def running(self) -> None:
        """Wait until it runs."""
        assert self.line()[1] == {"running": True}

    def send(self, number: signal.Signals) -> float:
        """Send a signal; gives when."""
        self.process.send_signal(number)
        return time.monotonic()

    def close(self) -> None:
        """End it by its own id, whatever its state."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def ring_of(world: int, *, rows: int = 4, hidden: int = 64, computes: int | None = None) -> Iterator[list[Rank]]:
    """Running ranks in processes; `rows` a round (0: no rounds), rank `computes` being in a forward for ever."""
    listeners = [tcp.listen("127.0.0.1:0") for _ in range(world)]
    addresses = [tcp.listening_address(listener) for listener in listeners]
    setup = {"world": world, "addresses": addresses, "key": os.urandom(32).hex(), "rows": rows, "hidden": hidden}
    ranks: list[Rank] = []
    try:
        for rank, listener in enumerate(listeners):
            ranks.append(Rank({**setup, "rank": rank, "computes": rank == computes}, listener.fileno()))
            listener.close()
        for child in reversed(ranks):
            child.running()
        yield ranks
    finally:
        for child in ranks:
            child.close()
        for listener in listeners:
            listener.close()


def check_ends(others: list[Rank], victim: int, codes: tuple[str, ...], since: float, within_s: float) -> None:
    """Every other rank names the victim in time and exits with 70."""
    for child in others:
        at, line = child.line()
        assert line["end"] == "RingLost", line
        assert (line["rank"], line["code"]) == (victim, line["code"]), line
        assert line["code"] in codes, line
        assert f"rank {victim} (127.0.0.1:" in line["text"]
        assert at - since < within_s, line
        assert child.process.wait(10) == 70


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_rank_is_named_by_all_others(victim: int) -> None:
    with ring_of(3) as ranks:
        since = ranks[victim].send(signal.SIGKILL)
        others = [child for child in ranks if child.rank != victim]
        check_ends(others, victim, ("peer_lost", "truncated"), since, KILLED_S)


def test_a_rank_is_killed_while_nothing_happens() -> None:
    with ring_of(4, rows=0) as ranks:
        since = ranks[2].send(signal.SIGKILL)
        check_ends([ranks[0], ranks[1], ranks[3]], 2, ("peer_lost",), since, KILLED_S)


def test_a_rank_in_a_long_forward_leaves_as_well() -> None:
    """Rank 1 computes and cannot be interrupted; rank 2 is killed; rank 1 says so and has left soon."""
    with ring_of(3, rows=0, computes=1) as ranks:
        since = ranks[2].send(signal.SIGKILL)
        check_ends(ranks[:2], 2, ("peer_lost",), since, KILLED_S)
        assert time.monotonic() - since < KILLED_S + 1.0


def test_a_stopped_rank_is_named_by_all_others() -> None:
    """Each rank of three rings at once, since noticing takes 6 s; in the last one every socket buffer is full of rows.

    Continued, the stopped rank learns from what the others left in its sockets that it was given up.
    """
    with ExitStack() as stack:
        rings = [stack.enter_context(ring_of(3)) for _ in range(2)]
        rings.append(stack.enter_context(ring_of(3, rows=64, hidden=1 << 17)))
        since = [ranks[victim].send(signal.SIGSTOP) for victim, ranks in enumerate(rings)]
        for victim, ranks in enumerate(rings):
            others = [child for child in ranks if child.rank != victim]
            check_ends(others, victim, ("silence",), since[victim], STOPPED_S)
        for victim, ranks in enumerate(rings):
            ranks[victim].send(signal.SIGCONT)
        for victim, ranks in enumerate(rings):
            _, line = ranks[victim].line()
            assert line["end"] == "RingLost", line
            assert ranks[victim].process.wait(10) == 70


def test_a_pause_shorter_than_the_limit_changes_nothing() -> None:
    with ring_of(2) as ranks:
        ranks[1].send(signal.SIGSTOP)
        with pytest.raises(queue.Empty):
            ranks[0].line(2.5)
        ranks[1].send(signal.SIGCONT)
        with pytest.raises(queue.Empty):
            ranks[0].line(0.3)
        ranks[0].send(signal.SIGKILL)
        check_ends([ranks[1]], 0, ("peer_lost", "truncated"), time.monotonic(), KILLED_S)
