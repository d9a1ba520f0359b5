"""What a hop costs beside the link: planning, waking, Python. Timed in a ring of two whose stages compute nothing.

    python -m ropeway.launch.hops        milliseconds a hop on this machine

Rank 1 is a process of its own, as in any ring; it is given its setup on standard input, as `launch/child.py` is.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence as Rows
from statistics import median
from typing import Final

import numpy as np

from ropeway.engines.base import Capacities, Logits, Span
from ropeway.launch.keys import new_key
from ropeway.serving.loop import Loop
from ropeway.serving.scheduler import Scheduler
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser
from ropeway.stage.describe import describe_stage
from ropeway.stage.follower import follow
from ropeway.stage.stage import Stage
from ropeway.transport import Ring, RingConfig, RingStopped, join, tcp
from ropeway.types import Backend, Boundary, EngineKind, KvDtype, Layout
from ropeway.wire import Ready

ROUNDS: Final = 200
CONTEXT: Final = 1024
LAYOUT_OF: Final = "00" * 32


class NoEngine:
    """A stage that passes rows through."""

    kind, backend, kv_dtype, weights_bytes = EngineKind.WORKER, Backend.CPU, KvDtype.F16, 0

    def __init__(self, hidden: int) -> None:
        self.boundary = Boundary(hidden)
        self.capacities = Capacities(64, CONTEXT, 1, CONTEXT, CONTEXT)

    def load(self) -> None:
        """Nothing to load."""

    def embed(self, tokens: Rows[int], out: memoryview) -> None:
        """Leave `out` as it is."""

    def forward(self, spans: Rows[Span], rows: memoryview, out: memoryview, wanted: Rows[int] | None = None) -> None:
        """Pass the rows on."""
        out[:] = rows[len(rows) - len(out) :]

    def forward_head(self, spans: Rows[Span], rows: memoryview, wanted: Rows[int]) -> Logits:
        """Logits of two tokens."""
        return np.zeros((len(wanted), 2), np.float32)

    head = forward_head

    def keep(self, slot: int, length: int) -> None:
        """Nothing is kept."""

    def release(self, slot: int) -> None:
        """Nothing is kept."""

    def save(self, slot: int) -> bytes:
        """Nothing is kept."""
        return b""

    def restore(self, slot: int, state: bytes) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to close."""


def hop_ms(hidden: int = 1024, rounds: int = ROUNDS) -> float:
    """Milliseconds of a hop on this machine over loopback: half of a round of one row through two empty stages.

    Raises RingEnded where the ring does not come up.
    """
    listeners = [tcp.listen("127.0.0.1:0") for _ in range(2)]
    try:
        addresses = tuple(map(tcp.listening_address, listeners))
        key = new_key()
        child = subprocess.Popen(
            [sys.executable, "-m", "ropeway.launch.hops", "1"],
            stdin=subprocess.PIPE,
            pass_fds=[listeners[1].fileno()],
        )
        try:
            assert child.stdin is not None
            value = {"listener": listeners[1].fileno(), "addresses": addresses, "key": key.hex(), "hidden": hidden}
            child.stdin.write(json.dumps(value).encode() + b"\n")
            child.stdin.flush()
            with join(_config(0, addresses, key, hidden, listeners[0])) as ring:
                return _time_rounds(ring, hidden, rounds)
        finally:
            if child.stdin is not None:
                child.stdin.close()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    finally:
        for listener in listeners:
            listener.close()


def _time_rounds(ring: Ring, hidden: int, rounds: int) -> float:
    engine = NoEngine(hidden)
    ring.descriptions()
    ring.readies()
    loop = Loop(Stage(engine), ring, Scheduler(1, 64, CONTEXT, CONTEXT, CONTEXT), PlainChooser())
    loop.scheduler.add(Sequence(0, (1, 1), rounds))
    times = []
    while not loop.scheduler.idle:
        started = time.perf_counter()
        loop.step()
        times.append((time.perf_counter() - started) * 1e3)
    return median(times[rounds // 4 :]) / 2


def _config(rank: int, addresses: tuple[str, ...], key: bytes, hidden: int, listener: socket.socket) -> RingConfig:
    layout = Layout(Boundary(hidden), LAYOUT_OF, 2, ((0, 1), (1, 2)))
    return RingConfig(rank, layout, key, addresses, CONTEXT, listener=listener, bring_up_s=30.0)


def _follower() -> int:
    """Rank 1: its setup is on standard input."""
    setup = json.loads(sys.stdin.readline())
    hidden = int(setup["hidden"])
    listener = socket.socket(fileno=setup["listener"])
    config = _config(1, tuple(setup["addresses"]), bytes.fromhex(setup["key"]), hidden, listener)
    engine = NoEngine(hidden)
    try:
        with join(config) as ring:
            ring.describe(describe_stage(config.layout, 1, engine))
            ring.ready(Ready(1, 0, 0, 0))
            follow(ring, Stage(engine), config.layout, 1, frozenset())
    except RingStopped:
        return 0
    return 1


if __name__ == "__main__":
    if sys.argv[1:] == ["1"]:
        os._exit(_follower())
    sys.stdout.write(f"{hop_ms():.3f} ms a hop\n")
