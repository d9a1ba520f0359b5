"""A ring of child processes whose every hop, the control star's too, passes through the delay proxy."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from delay_proxy import delayed
from ropeway.launch.keys import new_key
from ropeway.launch.local import LocalRanks
from ropeway.launch.placement import Placement
from ropeway.launch.rank import RankSetup
from ropeway.launch.rank0 import Rank0, open_ring
from ropeway.transport import tcp


@contextmanager
def far_ring(placement: Placement, one_way_s: float) -> Iterator[Rank0]:
    """As `open_local`, with `one_way_s` a hop and way."""
    with ExitStack() as stack:
        listeners: list[socket.socket] = [
            stack.enter_context(tcp.listen("127.0.0.1:0")) for _ in range(placement.layout.world)
        ]
        addresses = stack.enter_context(delayed(list(map(tcp.listening_address, listeners)), one_way_s))
        base = RankSetup(0, addresses, new_key(), listener=listeners[0])
        ranks = LocalRanks(base)
        stack.callback(ranks.end)
        for rank in range(1, placement.layout.world):
            ranks.start(placement, replace(base, rank=rank, listener=listeners[rank]))
            listeners[rank].close()
        yield stack.enter_context(open_ring(placement, base, ranks.serve))


def pin_far_ring() -> list[int]:
    """A core each for rank 0 and the other ranks, any for the proxy; the process ids, rank 0's first."""
    children = [int(pid) for pid in _children()]
    ranks = [pid for pid in children if b"delay_proxy" not in _command(pid)]
    if hasattr(os, "sched_setaffinity"):
        for rank, pid in enumerate([os.getpid(), *ranks]):
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {rank % (os.cpu_count() or 1)})
    return [os.getpid(), *children]


def _children() -> list[str]:
    try:
        with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
            return file.read().split()
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""
