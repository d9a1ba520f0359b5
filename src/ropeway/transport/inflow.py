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

from ropeway.transport.edges import Frame
from ropeway.transport.figures import Waits
from ropeway.transport.life import Life
from ropeway.transport.reader import Reader
from ropeway.wire import Kind

READ_AHEAD_BYTES: Final = 128 << 10
"""A payload of this size or more is read while the caller computes; less fits into the system's own buffers."""


class Inflow:
    """The receiving end of a rows connection, for one caller at a time."""

    def __init__(self, sock: socket.socket, reader: Reader, life: Life, waits: Waits, first_bytes: int) -> None:
        self._sock = sock
        self._reader = reader
        self._life = life
        self._cond = threading.Condition()
        self._expected: deque[Frame] = deque()
        self._ready: deque[tuple[Frame, bytearray]] = deque()
        self._waits = waits
        self._free = [bytearray(first_bytes), bytearray(first_bytes)]
        self._borrowed: bytearray | None = None
        self._reading = False
        """Somebody holds the socket."""
        self._nudged = False
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)
        self.waiting: tuple[int, int, float] | None = None
        """The round and part that the caller waits for, and since when (time.monotonic)."""
        sock.setblocking(True)
        self._thread = threading.Thread(target=self._run, name="ropeway rows reader", daemon=True)
        life.on_end(self._wake)
        self._thread.start()

    def expect(self, frames: list[Frame]) -> None:
        """A plan is known: these frames follow those that are expected already."""
        with self._cond:
            self._expected.extend(frames)
            if self._work():
                self._cond.notify_all()

    def take(self, kind: Kind, round_: int, part: int) -> memoryview:
        """The payload of the next frame, which must be this one; borrowed until `release`. Raises RingEnded."""
        started = time.monotonic()
        self.waiting = round_, part, started
        frame, buffer, unread = self._claim()
        if unread:
            try:
                self._reader.fill(frame, memoryview(buffer)[: frame.payload_bytes])
            finally:
                self._put_down()
        self.waiting = None
        self._waits.rows_ns += int((time.monotonic() - started) * 1e9)
        asked = kind, round_, part
        assert (frame.kind, frame.round, frame.part) == asked, f"asked for {asked}, but the plans imply {frame}"
        return memoryview(buffer)[: frame.payload_bytes]

    def release(self) -> None:
        """Give the borrowed rows back; their memory is filled anew."""
        with self._cond:
            assert self._borrowed is not None, "no rows are borrowed"
            self._free.append(self._borrowed)
            self._borrowed = None
            if self._work():
                self._cond.notify_all()

    def nudge(self) -> None:
        """Let the reader thread look where something has come and nobody reads: a fate, an end, early rows."""
        if not self._reading and self._poller.poll(0):
            with self._cond:
                self._nudged = True
                if self._work():
                    self._cond.notify_all()

    def close(self, timeout_s: float) -> None:
        """After the ring's end: wait until nobody reads, so that the socket can be closed."""
        self._thread.join(timeout_s)
        with self._cond:
            self._cond.wait_for(lambda: not self._reading, timeout_s)

    def _claim(self) -> tuple[Frame, bytearray, bool]:
        """The next frame and its buffer, and whether the caller has to read it; then it holds the socket."""
        with self._cond:
            assert self._borrowed is None, "rows are still borrowed: release_rows comes first"
            while not self._ready:
                self._life.check()
                if not self._reading:
                    self._nudged = False
                    frame, self._borrowed = self._begin()
                    return frame, self._borrowed, True
                self._cond.wait()
            frame, self._borrowed = self._ready.popleft()
            return frame, self._borrowed, False

    def _begin(self) -> tuple[Frame, bytearray]:
        """Take up the socket for the next expected frame."""
        assert self._expected, "asked for rows that no plan implies"
        frame, buffer = self._expected.popleft(), self._free.pop()
        if len(buffer) < frame.payload_bytes:
            buffer = bytearray(frame.payload_bytes)
        self._reading = True
        return frame, buffer

    def _put_down(self) -> None:
        with self._cond:
            self._reading = False
            if self._work() or self._life.over:
                self._cond.notify_all()

    def _work(self) -> bool:
        """There is something for the reader thread to do."""
        if self._reading:
            return False
        if not self._expected:
            return self._nudged and not self._reader.holds_header
        return bool(self._free) and (self._nudged or self._expected[0].payload_bytes >= READ_AHEAD_BYTES)

    def _run(self) -> None:
        with self._life.guard("rows reader"):
            while True:
                self._read_ahead()

    def _read_ahead(self) -> None:
        """Wait for work and do one piece of it. Raises RingEnded."""
        with self._cond:
            while not self._work():
                self._life.check()
                self._cond.wait()
            self._nudged = False
            ahead = self._begin() if self._expected else None
            self._reading = True
        try:
            if ahead is None:
                self._reader.listen()
            else:
                frame, buffer = ahead
                self._reader.fill(frame, memoryview(buffer)[: frame.payload_bytes])
                self._ready.append(ahead)
        finally:
            with self._cond:
                self._reading = False
                self._cond.notify_all()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)
        with self._cond:
            self._cond.notify_all()
