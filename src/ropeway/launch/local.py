"""Ranks 1..N-1 as child processes of rank 0 on this machine, joined over loopback, and what their deaths mean."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from ropeway.launch.child import dump_setup
from ropeway.launch.keys import new_key
from ropeway.launch.placement import Placement
from ropeway.launch.rank import EXIT_RING, GRACE_S, RankSetup
from ropeway.transport import Ring, tcp
from ropeway.wire import ErrorCode

STOP_S = 3.0
"""How long a child may take to end by itself once the ring was stopped, before it is killed."""
LOST_S = 0.8 * GRACE_S
"""The same once the ring is lost: rank 0 itself may have to leave within `GRACE_S`, and leaves no child behind."""
TAIL_LINES = 40
LINE_BYTES = 4096


class Child:
    """One child process. What it says goes to our standard error, and its last lines are kept to explain its end."""

    def __init__(self, placement: Placement, setup: RankSetup) -> None:
        listener = setup.listener
        assert listener is not None
        assert listener.fileno() > 2, "a listener must not take the place of a standard stream"
        self.rank = setup.rank
        self.address = setup.addresses[setup.rank]
        self.ended = threading.Event()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ropeway.launch.child", str(setup.rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(dump_setup(placement.options, setup))
            self._process.stdin.flush()

    def wait(self) -> int:
        """Pass on what it says until it has ended; gives its exit status. For one thread, once."""
        stream = self._process.stderr
        assert stream is not None
        with stream:
            for line in iter(lambda: stream.readline(LINE_BYTES), b""):
                with contextlib.suppress(OSError):
                    os.write(2, line)
                self._tail.append(line.decode(errors="replace").strip())
        status = self._process.wait()
        self.ended.set()
        return status

    def told(self) -> str:
        """Why it ended, in its own words: the last line that it wrote, if any."""
        said = next((line for line in reversed(self._tail) if line), "")
        return said.removeprefix(f"ropeway: rank {self.rank}: ")

    def let_go(self) -> None:
        """Tell it that we are leaving."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        """End it now, a stopped one too."""
        if not self.ended.is_set():
            self._process.kill()


class LocalRanks:
    """The children, and what rank 0 needs to join them."""

    def __init__(self, setup: RankSetup) -> None:
        self.setup = setup
        self._children: list[Child] = []
        self._watchers: list[threading.Thread] = []
        self._begun = threading.Event()
        self._over = threading.Event()
        self._ring: Ring | None = None

    def start(self, placement: Placement, setup: RankSetup) -> None:
        """Start the child of `setup`."""
        child = Child(placement, setup)
        watcher = threading.Thread(target=self._watch, args=(child,), name=f"rank {child.rank}", daemon=True)
        self._children.append(child)
        self._watchers.append(watcher)
        watcher.start()

    def serve(self, ring: Ring) -> None:
        """From now on a child that ends too early ends `ring`, and no child outlives it for long. For `join`."""
        self._ring = ring
        ring.on_end(self._ring_ended)
        self._begun.set()

    def end(self) -> None:
        """End every child: by itself if it does so in time."""
        self._begun.set()
        for child in self._children:
            child.let_go()
        lost = self._ring is not None and self._ring.lost is not None
        self._end_within(LOST_S if lost else STOP_S)
        for watcher in self._watchers:
            watcher.join(1.0)

    def _watch(self, child: Child) -> None:
        status = child.wait()
        self._begun.wait()
        ring = self._ring
        if ring is None:
            return
        if status in (0, EXIT_RING) and self._over.wait(GRACE_S):
            return  # it was not the first to go
        text = f"rank {child.rank} ({child.address}) {_how_it_ended(status)}"
        if -status not in (signal.SIGKILL, signal.SIGTERM) and (told := child.told()):
            text = f"{text}: {told}"
        ring.fail(ErrorCode.PEER_LOST, text, child.rank)

    def _ring_ended(self) -> None:
        self._over.set()
        ring = self._ring
        assert ring is not None
        if ring.lost is None:
            return
        for child in self._children:
            if child.rank == ring.lost.rank and ring.lost.code in (ErrorCode.SILENCE, ErrorCode.DEADLINE):
                child.kill()  # it will not hear of the end
        threading.Thread(target=self._end_within, args=(LOST_S,), name="last of the ranks", daemon=True).start()

    def _end_within(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        for child in self._children:
            if not child.ended.wait(max(0.0, deadline - time.monotonic())):
                child.kill()
        for child in self._children:
            child.ended.wait(1.0)


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"has ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


@contextlib.contextmanager
def local_ranks(placement: Placement, bring_up_s: float = 60.0) -> Iterator[LocalRanks]:
    """Start a child a rank with a fresh key and inherited listeners; end every child on the way out."""
    world = placement.layout.world
    listeners: list[socket.socket] = []
    ranks: LocalRanks | None = None
    try:
        listeners += [tcp.listen("127.0.0.1:0") for _ in range(world)]
        addresses = tuple(map(tcp.listening_address, listeners))
        base = RankSetup(0, addresses, new_key(), listener=listeners[0], bring_up_s=bring_up_s)
        ranks = LocalRanks(base)
        for rank in range(1, world):
            ranks.start(placement, replace(base, rank=rank, listener=listeners[rank]))
            listeners[rank].close()
        yield ranks
    finally:
        for listener in listeners:
            listener.close()
        if ranks is not None:
            ranks.end()
