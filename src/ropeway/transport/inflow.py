"""Rows that come in from the rank before: two buffers, filled in the plans' order.

Whoever waits for rows reads the socket itself, because waking a second thread costs more than a row does. The reader
thread of this file takes over only where that pays: while the caller computes and a large part is due, or where
`nudge` finds bytes that nobody reads.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from typing import Final

from ropeway.transport.buffer import Buffer
from ropeway.transport.connection import Connection
from ropeway.transport.edges import Frame
from ropeway.transport.figures import Waits
from ropeway.transport.life import Life
from ropeway.transport.reader import Reader
from ropeway.wire import Kind

READ_AHEAD_BYTES: Final = 128 << 10
"""A payload of this size or more is read while the caller computes; less fits into the system's own buffers."""


class Inflow:
    """The receiving end of a rows connection, for one caller at a time.

    Who holds the baton reads the socket, and alone takes from `_expected` and `_free`. The locks of this file cost a
    tenth of a microsecond each on the way of a row, conditions ten times that.
    """

    def __init__(self, connection: Connection, reader: Reader, life: Life, waits: Waits, first_bytes: int) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._reader = reader
        self._life = life
        self._waits = waits
        self._baton = threading.Lock()
        self._expected: deque[Frame] = deque()
        self._ready: deque[tuple[Frame, Buffer]] = deque()
        self._free = [Buffer(first_bytes), Buffer(first_bytes)]
        self._borrowed: Buffer | None = None
        self._nudged = False
        self._poller = select.poll()
        self._poller.register(self._sock, select.POLLIN)
        self._called = threading.Event()
        """There may be work for the reader thread."""
        self._arrived = threading.Event()
        """The reader thread has put the baton down."""
        self.waiting: tuple[int, int, float] | None = None
        """The round and part that the caller waits for, and since when (time.monotonic)."""
        self._sock.setblocking(True)
        self._thread = threading.Thread(target=self._run, name="ropeway rows reader", daemon=True)
        life.on_end(self._wake)
        self._thread.start()

    def expect(self, frames: list[Frame]) -> None:
        """A plan is known: these frames follow those that are expected already."""
        self._expected.extend(frames)
        self._call_reader()

    def take(self, kind: Kind, round_: int, part: int) -> memoryview:
        """The payload of the next frame, which must be this one; borrowed until `release`. Raises RingEnded."""
        assert self._borrowed is None, "rows are still borrowed: release_rows comes first"
        started = time.monotonic()
        self.waiting = round_, part, started
        if self._baton.acquire(False):
            try:
                if self._ready:
                    frame, buffer = self._ready.popleft()
                else:
                    frame, buffer = self._begin()
                    _check(frame, kind, round_, part)
                    self._borrowed = buffer
                    self._reader.fill(frame, buffer)
            finally:
                self._baton.release()
        else:
            frame, buffer = self._await_reader()
        if self._borrowed is None:
            _check(frame, kind, round_, part)
            self._borrowed = buffer
        ended = time.monotonic()
        self.waiting = None
        self._waits.rows_s += ended - started
        self._connection.heard_at = ended
        if self._expected and self._expected[0].payload_bytes >= READ_AHEAD_BYTES:
            self._called.set()
        return buffer.payload

    def release(self) -> None:
        """Give the borrowed rows back; their memory is filled anew."""
        assert self._borrowed is not None, "no rows are borrowed"
        self._free.append(self._borrowed)
        self._borrowed = None
        if self._expected and self._expected[0].payload_bytes >= READ_AHEAD_BYTES:
            self._called.set()

    def nudge(self) -> None:
        """Let the reader thread look where something has come and nobody reads: a fate, an end, early rows."""
        if not self._baton.locked() and self._poller.poll(0):
            self._nudged = True
            self._call_reader()

    def close(self, timeout_s: float) -> None:
        """After the ring's end: wait until nobody reads, so that the socket can be closed."""
        self._thread.join(timeout_s)
        if self._baton.acquire(timeout=timeout_s):
            self._baton.release()

    def _begin(self) -> tuple[Frame, Buffer]:
        """With the baton: the next expected frame and a buffer for it. Raises RingEnded."""
        if self._life.over:
            self._life.leave()
        assert self._expected, "asked for rows that no plan implies"
        frame, buffer = self._expected.popleft(), self._free.pop()
        self._nudged = False
        self._connection.received_bytes += frame.frame_bytes
        buffer.fit(frame.payload_bytes)
        return frame, buffer

    def _read_next(self) -> tuple[Frame, Buffer]:
        """With the baton: read the next expected frame into a free buffer. Raises RingEnded."""
        frame, buffer = self._begin()
        self._reader.fill(frame, buffer)
        return frame, buffer

    def _await_reader(self) -> tuple[Frame, Buffer]:
        """Wait for the reader thread, which has the baton. Raises RingEnded."""
        while not self._ready:
            self._life.check()
            if self._baton.acquire(False):
                try:
                    return self._ready.popleft() if self._ready else self._read_next()
                finally:
                    self._baton.release()
            self._arrived.wait()
            self._arrived.clear()
        return self._ready.popleft()

    def _call_reader(self) -> None:
        if self._has_work():
            self._called.set()

    def _has_work(self) -> bool:
        """There is something for the reader thread to do."""
        if not self._expected:
            return self._nudged and not self._reader.holds_early
        return bool(self._free) and (self._nudged or self._expected[0].payload_bytes >= READ_AHEAD_BYTES)

    def _run(self) -> None:
        with self._life.guard("the rows reader"):
            while True:
                self._called.wait()
                self._called.clear()
                self._life.check()
                while self._baton.acquire(False):
                    try:
                        if not self._has_work():
                            break
                        self._read_ahead()
                    finally:
                        self._baton.release()
                        self._arrived.set()

    def _read_ahead(self) -> None:
        """With the baton: one piece of the reader thread's work. Raises RingEnded."""
        if self._expected:
            self._ready.append(self._read_next())
            self._connection.heard_at = time.monotonic()
        else:
            self._nudged = False
            self._reader.listen()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)
        self._called.set()
        self._arrived.set()


def _check(frame: Frame, kind: Kind, round_: int, part: int) -> None:
    assert frame.part == part, f"asked for part {part}, the plans imply {frame}"
    assert frame.round == round_, f"asked for round {round_}, the plans imply {frame}"
    assert frame.kind is kind, f"asked for {kind.label}, the plans imply {frame}"
