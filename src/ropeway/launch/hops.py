"""Rings whose stages keep time instead of computing: what a hop costs beside the link (planning, waking, Python).

    python -m ropeway.launch.hops        milliseconds a hop on this machine

The other ranks are processes of their own, as in any ring; they are given their setup on standard input, as
`launch/child.py` is. With costs of their own, stages take as long as a placement says that they would.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence as Rows
from statistics import median
from typing import Final

import numpy as np

from ropeway.engines.base import Capacities, Logits, Span
from ropeway.launch.keys import new_key
from ropeway.placement.facts import Cost, Costs
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
CONTEXT: Final = 4096
NOBODY: Final = "00" * 32
"""The checkpoint of a ring without a model."""


class Clockwork:
    """A stage that passes rows through and takes `costs` for it; a lone row is decode, more are a prompt."""

    kind, backend, kv_dtype, weights_bytes = EngineKind.WORKER, Backend.CPU, KvDtype.F16, 0

    def __init__(self, hidden: int, chunk: int, costs: Costs) -> None:
        self.boundary = Boundary(hidden)
        self.capacities = Capacities(chunk, CONTEXT, 1, CONTEXT, CONTEXT)
        self._costs = costs

    def load(self) -> None:
        """Nothing to load."""

    def embed(self, tokens: Rows[int], out: memoryview) -> None:
        """Leave `out` as it is."""

    def forward(self, spans: Rows[Span], rows: memoryview, out: memoryview, wanted: Rows[int] | None = None) -> None:
        """Pass the last rows on when the time is over."""
        due = time.perf_counter() + self._ms(spans) / 1e3
        out[:] = rows[len(rows) - len(out) :]
        _sleep_until(due)

    def _ms(self, spans: Rows[Span]) -> float:
        rows = sum(span.rows for span in spans)
        cost = self._costs.decode if rows == 1 else self._costs.prompt
        depth = sum(span.rows * (span.first + (span.rows + 1) / 2) for span in spans) / rows
        return cost.ms(rows, depth)

    def forward_head(self, spans: Rows[Span], rows: memoryview, wanted: Rows[int]) -> Logits:
        """As `forward`, then `head`."""
        _sleep_until(time.perf_counter() + self._ms(spans) / 1e3)
        return self.head(spans, rows, wanted)

    def head(self, spans: Rows[Span], rows: memoryview, wanted: Rows[int]) -> Logits:
        """Logits of two tokens, at once."""
        return np.zeros((len(wanted), 2), np.float32)

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


def _sleep_until(due: float) -> None:
    if (left_s := due - time.perf_counter()) > 0:
        time.sleep(left_s)


def hop_ms(hidden: int = 1024, rounds: int = ROUNDS) -> float:
    """Milliseconds of a hop on this machine over loopback: half of a round of one row through two empty stages.

    Raises RingEnded where the ring does not come up.
    """
    times = []
    with clockwork([Costs(), Costs()], hidden) as loop:
        loop.scheduler.add(Sequence(0, (1, 1), rounds))
        while not loop.scheduler.idle:
            started = time.perf_counter()
            loop.step()
            times.append((time.perf_counter() - started) * 1e3)
    return median(times[rounds // 4 :]) / 2


@contextlib.contextmanager
def clockwork(costs: Rows[Costs], hidden: int, chunk: int = 64) -> Iterator[Loop]:
    """A ring on this machine whose stages take `costs`, rank 0 here; parts have `chunk` rows. Raises RingEnded."""
    if len(costs) == 1:
        yield _loop(hidden, chunk, costs[0], None)
        return
    world, key = len(costs), new_key()
    listeners = [tcp.listen("127.0.0.1:0") for _ in range(world)]
    children: list[subprocess.Popen[bytes]] = []
    try:
        addresses = tuple(map(tcp.listening_address, listeners))
        for rank in range(1, world):
            children.append(_child(rank, listeners[rank], addresses, key, hidden, chunk, costs[rank]))
        with join(_config(0, addresses, key, hidden, listeners[0])) as ring:
            ring.descriptions()
            ring.readies()
            yield _loop(hidden, chunk, costs[0], ring)
    finally:
        for child in children:
            _end(child)
        for listener in listeners:
            listener.close()


def _loop(hidden: int, chunk: int, costs: Costs, ring: Ring | None) -> Loop:
    """Rank 0's, with one slot."""
    scheduler = Scheduler(1, chunk, CONTEXT, CONTEXT, CONTEXT)
    return Loop(Stage(Clockwork(hidden, chunk, costs)), ring, scheduler, PlainChooser())


def _child(
    rank: int, listener: socket.socket, addresses: Rows[str], key: bytes, hidden: int, chunk: int, costs: Costs
) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-m", "ropeway.launch.hops", str(rank)], stdin=subprocess.PIPE, pass_fds=[listener.fileno()]
    )
    value = {
        "listener": listener.fileno(),
        "addresses": addresses,
        "key": key.hex(),
        "hidden": hidden,
        "chunk": chunk,
        "costs": [[cost.fixed_ms, cost.row_ms, cost.depth_ms] for cost in (costs.decode, costs.prompt)],
    }
    assert child.stdin is not None
    child.stdin.write(json.dumps(value).encode() + b"\n")
    child.stdin.flush()
    return child


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _config(rank: int, addresses: tuple[str, ...], key: bytes, hidden: int, listener: socket.socket) -> RingConfig:
    ranges = tuple((at, at + 1) for at in range(len(addresses)))
    layout = Layout(Boundary(hidden), NOBODY, len(addresses), ranges)
    return RingConfig(rank, layout, key, addresses, CONTEXT, listener=listener, bring_up_s=30.0)


def _follower(rank: int) -> int:
    """A rank from 1 on: its setup is on standard input."""
    setup = json.loads(sys.stdin.readline())
    hidden = int(setup["hidden"])
    listener = socket.socket(fileno=setup["listener"])
    config = _config(rank, tuple(setup["addresses"]), bytes.fromhex(setup["key"]), hidden, listener)
    engine = Clockwork(hidden, int(setup["chunk"]), Costs(*(Cost(*cost) for cost in setup["costs"])))
    try:
        with join(config) as ring:
            ring.describe(describe_stage(config.layout, rank, engine))
            ring.ready(Ready(rank, 0, 0, 0))
            follow(ring, Stage(engine), config.layout, rank, frozenset())
    except RingStopped:
        return 0
    return 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os._exit(_follower(int(sys.argv[1])))
    sys.stdout.write(f"{hop_ms():.3f} ms a hop\n")
