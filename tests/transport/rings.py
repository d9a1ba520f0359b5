"""Rings for tests: configurations on loopback, ranks in threads, and an echoing stage."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ropeway.transport import Ring, RingConfig, RingEnded, join, tcp
from ropeway.types import Backend, Boundary, EngineKind, KvDtype, Layout, RowDtype, SamplerAt
from ropeway.wire import Describe, Done, Op, Plan, Ready, Returns, StreamEntry, Token, Tokens

HIDDEN = 64
ROW_BYTES = 4 * HIDDEN
MAX_ROWS = 1 << 16


def layout(
    world: int, hidden: int = HIDDEN, sampler: SamplerAt = SamplerAt.FIRST, checkpoint: str = "00" * 32
) -> Layout:
    """One layer a rank."""
    ranges = tuple((rank, rank + 1) for rank in range(world))
    return Layout(Boundary(hidden), checkpoint, world, ranges, sampler)


class Place:
    """Listeners, addresses and a key for a ring that is to be formed; closes the listeners."""

    def __init__(self, shape: Layout, host: str = "127.0.0.1", bring_up_s: float = 20.0, round_s: float = 20.0) -> None:
        self.layout = shape
        self.listeners = [tcp.listen(f"{host}:0") for _ in range(shape.world)]
        self.addresses = tuple(map(tcp.listening_address, self.listeners))
        self.key = os.urandom(32)
        self.bring_up_s = bring_up_s
        self.round_s = round_s

    def config(self, rank: int, **changes: Any) -> RingConfig:
        """A rank's configuration."""
        config = RingConfig(
            rank,
            self.layout,
            self.key,
            self.addresses,
            MAX_ROWS,
            listener=self.listeners[rank],
            bring_up_s=self.bring_up_s,
            round_s=self.round_s,
        )
        return replace(config, **changes)

    def close(self) -> None:
        """Close the listeners."""
        for listener in self.listeners:
            listener.close()


@contextlib.contextmanager
def place(shape: Layout, **options: Any) -> Iterator[Place]:
    """A place whose listeners are closed at the end."""
    here = Place(shape, **options)
    try:
        yield here
    finally:
        here.close()


def describe(shape: Layout, rank: int) -> Describe:
    """What a test's stage says of itself."""
    first, end = shape.ranges[rank]
    hidden, engine = shape.boundary.hidden, EngineKind.TORCH
    dtypes = RowDtype.F32, KvDtype.F32, Backend.CPU
    return Describe(rank, shape.world, first, end, hidden, 1, *dtypes, engine, 512, MAX_ROWS, 8, MAX_ROWS, MAX_ROWS)


class Party:
    """All ranks of a ring in threads of this process."""

    def __init__(self, here: Place, **changes: Any) -> None:
        self.layout = here.layout
        self.pool = ThreadPoolExecutor(here.layout.world * 2)
        futures = [self.pool.submit(join, here.config(rank, **changes)) for rank in range(here.layout.world)]
        self.rings: list[Ring] = [future.result(30) for future in futures]

    def boot(self) -> Party:
        """Describe and ready."""
        for rank, ring in enumerate(self.rings[1:], 1):
            ring.describe(describe(self.layout, rank))
            ring.ready(Ready(rank, 0, 0, 0))
        self.rings[0].descriptions()
        self.rings[0].readies()
        return self

    def run(self, *stages: Callable[[Ring], Any]) -> list[Future[Any]]:
        """Run one function for each of the first ranks from 1 on."""
        return [self.pool.submit(stage, ring) for stage, ring in zip(stages, self.rings[1:], strict=False)]

    def close(self) -> None:
        """Stop and close everything."""
        self.rings[0].stop()
        for ring in self.rings:
            ring.close()
        self.pool.shutdown()


@contextlib.contextmanager
def party(shape: Layout, *, boot: bool = True, **options: Any) -> Iterator[Party]:
    """A formed ring; with `boot` its stages are ready."""
    with place(shape, **options) as here:
        guests = Party(here)
        try:
            yield guests.boot() if boot else guests
        finally:
            guests.close()


def prompt(stream: int, rows: int, cuts: tuple[int, ...] = (), returns: Returns = Returns.LAST) -> Plan:
    """A plan with one new stream."""
    return Plan((StreamEntry(stream, Op.OPEN, rows=rows),), cuts, returns=returns)


def echo(ring: Ring) -> RingEnded:
    """A stage that passes its rows on as they are (the last one what returns), until the ring ends."""
    shape, last = ring.layout, ring.rank == ring.world - 1
    row_bytes = shape.boundary.row_bytes()
    try:
        while True:
            number, plan = ring.next_plan()
            kept = b""
            for part, (start, stop) in enumerate(plan.part_ranges()):
                rows = ring.receive_rows(number, part)
                if not last or (plan.returns is Returns.ALL and shape.sampler is SamplerAt.FIRST):
                    out = ring.send_buffer(len(rows))
                    out[:] = rows
                    ring.send_rows(number, part, stop - start, out)
                else:
                    kept += rows
                ring.release_rows()
            wanted = plan.returned_rows()
            if kept and wanted and shape.sampler is SamplerAt.FIRST:
                out = ring.send_buffer(len(wanted) * row_bytes)
                out[:] = b"".join(kept[row * row_bytes : (row + 1) * row_bytes] for row in wanted)
                ring.send_rows(number, 0, len(wanted), out)
            elif kept and wanted:
                ring.send_tokens(
                    number, Tokens(tuple(Token(e.stream, 7, e.rows, False) for e in plan.entries if e.rows))
                )
            ring.done(number, Done(ring.rank))
    except RingEnded as end:
        return end


def send_parts(ring: Ring, number: int, plan: Plan, payload: bytes) -> None:
    """Rank 0 sends a round's rows, cut into parts."""
    row_bytes = ring.layout.boundary.row_bytes()
    for part, (start, stop) in enumerate(plan.part_ranges()):
        piece = payload[start * row_bytes : stop * row_bytes]
        out = ring.send_buffer(len(piece))
        out[:] = piece
        ring.send_rows(number, part, stop - start, out)


def receive_back(ring: Ring, number: int, plan: Plan) -> bytes:
    """Rank 0 takes what returns of a round."""
    parts = []
    for part in range(len(plan.returned_frames())):
        parts.append(bytes(ring.receive_rows(number, part)))
        ring.release_rows()
    return b"".join(parts)


def loopback_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    return one, other


def wait_until(true: Callable[[], bool]) -> None:
    """Wait, with a deadline, for something that another thread does."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def threads_of_rings() -> list[str]:
    """Names of the threads that rings have left behind."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ropeway")]
