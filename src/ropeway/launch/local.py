"""Ranks 1..N-1 as child processes of rank 0 on this machine, joined over loopback."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ropeway.launch.keys import new_key
from ropeway.launch.placement import Placement
from ropeway.launch.rank import RankSetup, dump_setup
from ropeway.transport import tcp

STOP_S = 3.0
"""How long a child may take to end by itself before it is killed."""


@dataclass(slots=True)
class LocalRanks:
    """The children, and what rank 0 needs to join them."""

    setup: RankSetup
    children: list[subprocess.Popen[bytes]]

    def first_dead(self) -> tuple[int, int] | None:
        """(rank, exit status) of a child that has ended, if any."""
        for rank, child in enumerate(self.children, start=1):
            status = child.poll()
            if status is not None:
                return rank, status
        return None


@contextlib.contextmanager
def local_ranks(placement: Placement, bring_up_s: float = 60.0) -> Iterator[LocalRanks]:
    """Start a child a rank with a fresh key and inherited listeners; end every child on the way out."""
    world = placement.layout.world
    listeners = [tcp.listen("127.0.0.1:0") for _ in range(world)]
    addresses = tuple("{}:{}".format(*listener.getsockname()) for listener in listeners)
    base = RankSetup(0, addresses, new_key(), listener=listeners[0], bring_up_s=bring_up_s)
    ranks = LocalRanks(base, [])
    try:
        for rank in range(1, world):
            ranks.children.append(_start(placement, replace(base, rank=rank, listener=listeners[rank])))
            listeners[rank].close()
        yield ranks
    finally:
        for listener in listeners:
            listener.close()
        _end(ranks.children)


def _start(placement: Placement, setup: RankSetup) -> subprocess.Popen[bytes]:
    listener = setup.listener
    assert listener is not None
    _check_listener(listener)
    child = subprocess.Popen(
        [sys.executable, "-m", "ropeway.launch.rank"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[listener.fileno()],
    )
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(dump_setup(placement.options, setup))
        child.stdin.flush()
    return child


def _check_listener(listener: socket.socket) -> None:
    assert listener.fileno() > 2, "a listener must not take the place of a standard stream"


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + STOP_S
    for child in children:
        if child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
