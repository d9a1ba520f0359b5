"""Rows that go out to the next rank: two buffers, so that one is sent while the next part is computed into the other.

A small frame leaves in the caller's own thread; what the socket does not take at once, and every large frame, is sent
by the sender thread of this file.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from functools import partial
from typing import Final

from ropeway.transport.connection import Connection
from ropeway.transport.edges import Frame
from ropeway.transport.figures import Waits
from ropeway.transport.life import Life
from ropeway.wire import ErrorCode, Kind, ProtocolError

HAND_OVER_BYTES: Final = 256 << 10
"""A payload of this size or more is copied to the system by the sender thread, so that computing goes on."""
LOOK_S: Final = 0.1
"""How often a sender that waits for room looks whether the ring still lives."""


class Outflow:
    """The sending end of a rows connection, for one caller."""

    def __init__(self, connection: Connection, life: Life, waits: Waits, first_bytes: int) -> None:
        self._connection = connection
        self._life = life
        self._cond = threading.Condition()
        self._due: deque[Frame] = deque()
        self._waits = waits
        self._free = [bytearray(first_bytes), bytearray(first_bytes)]
        self._lent: deque[bytearray] = deque()
        self._handed = threading.Event()
        self.waiting: float | None = None
        """Since when a caller waits for a buffer (time.monotonic)."""
        connection.sock.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="ropeway rows sender", daemon=True)
        life.on_end(self._wake)
        self._thread.start()

    def expect(self, frames: list[Frame]) -> None:
        """A plan is known: these frames have to be sent after those that are due already."""
        self._due.extend(frames)

    def lend(self, payload_bytes: int) -> memoryview:
        """Memory for the next frame's payload. Waits while both buffers are in flight. Raises RingEnded."""
        with self._cond:
            if not self._free:
                self._wait_for_buffer()
            buffer = self._free.pop()
            if len(buffer) < payload_bytes:
                buffer = bytearray(payload_bytes)
            self._lent.append(buffer)
        return memoryview(buffer)[:payload_bytes]

    def send(self, kind: Kind, round_: int, part: int, rows: int, payload: memoryview) -> None:
        """Send the next frame out of the buffer that was lent first.

        Raises RingEnded, or ProtocolError (`rows_length`, ours) where the plan implies another frame.
        """
        self._life.check()
        frame = self._due[0] if self._due else None
        asked = kind, round_, part, rows, len(payload)
        if frame is None or (frame.kind, frame.round, frame.part, frame.rows, frame.payload_bytes) != asked:
            raise ProtocolError(ErrorCode.ROWS_LENGTH, f"asked to send {asked}, the plans imply {frame}")
        self._due.popleft()
        buffer = self._lent.popleft()
        assert payload.obj is buffer, "send buffers leave in the order in which they were lent"
        self._push(frame, payload, buffer)

    def _push(self, frame: Frame, payload: memoryview, buffer: bytearray) -> None:
        connection = self._connection
        sent = partial(self._give_back, buffer)
        try:
            with connection.lock:
                if len(payload) >= HAND_OVER_BYTES:
                    connection.outbox.queue((frame.header, payload), sent)
                elif connection.outbox.push((frame.header, payload), sent):
                    return
        except OSError as error:
            self._life.blame(connection.rank, error)
            self._life.leave()
        self._handed.set()

    def close(self, timeout_s: float) -> None:
        """After the ring's end: wait until the sender thread has left."""
        self._thread.join(timeout_s)

    def _wait_for_buffer(self) -> None:
        started = time.monotonic()
        self.waiting = started
        while not self._free:
            self._life.check()
            self._cond.wait()
        self.waiting = None
        self._waits.send_ns += int((time.monotonic() - started) * 1e9)

    def _give_back(self, buffer: bytearray) -> None:
        with self._cond:
            self._free.append(buffer)
            self._cond.notify()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._connection.sock, select.POLLOUT)
        with self._life.guard("rows sender"):
            while True:
                self._handed.wait()
                self._handed.clear()
                try:
                    while not self._life.over and not self._connection.flush():
                        poller.poll(LOOK_S * 1e3)
                except OSError as error:
                    self._life.blame(self._connection.rank, error)
                self._life.check()

    def _wake(self) -> None:
        self._handed.set()
        with self._cond:
            self._cond.notify_all()
