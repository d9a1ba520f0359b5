"""Rows that go out to the next rank: two buffers, so that one is sent while the next part is computed into the other.

A small frame leaves in the caller's own thread, by one system call and without a lock that anybody holds for long. What
the socket does not take at once, and every large frame, is sent by the sender thread of this file.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from functools import partial
from typing import Final

from ropeway.transport.buffer import HEADER_AT, PAYLOAD_AT, Buffer
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
        self._outbox = connection.outbox
        self._lock = connection.lock
        self._life = life
        self._waits = waits
        self._due: deque[Frame] = deque()
        self._free = [Buffer(first_bytes), Buffer(first_bytes)]
        """Buffers that are neither lent nor in flight; taken by the caller, put back by whoever sent the last byte."""
        self._returned = threading.Event()
        """Set whenever a buffer has come back, or the ring has ended."""
        self._lent: deque[Buffer] = deque()
        self._handed = threading.Event()
        self.waiting: float | None = None
        """Since when the caller waits for a buffer (time.monotonic)."""
        connection.sock.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="ropeway rows sender", daemon=True)
        life.on_end(self._wake)
        self._thread.start()

    def expect(self, frames: list[Frame]) -> None:
        """A plan is known: these frames have to be sent after those that are due already."""
        self._due.extend(frames)

    def lend(self, payload_bytes: int) -> memoryview:
        """Memory for the next frame's payload. Waits while both buffers are in flight. Raises RingEnded."""
        if not self._free:
            self._wait_for_buffer()
        buffer = self._free.pop()
        buffer.fit(payload_bytes)
        self._lent.append(buffer)
        return buffer.payload

    def send(self, kind: Kind, round_: int, part: int, rows: int, payload: memoryview) -> None:
        """Send the next frame out of the buffer that was lent first.

        Raises RingEnded, or ProtocolError (`rows_length`, ours) where the plan implies another frame.
        """
        if not self._due or not self._due[0].is_called(kind, round_, part, rows, len(payload)):
            raise self._unplanned(kind, round_, part, rows, len(payload))
        frame, buffer = self._due.popleft(), self._lent.popleft()
        assert payload is buffer.payload, "send buffers leave whole, and in the order in which they were lent"
        buffer.memory[HEADER_AT:PAYLOAD_AT] = frame.header
        outbox, count = self._outbox, 0
        self._lock.acquire()  # not `with`, which takes twice the time of acquire and release
        try:
            if not self._life.ending:  # nothing may follow our fate
                if frame.payload_bytes < HAND_OVER_BYTES:
                    count = outbox.offer(buffer.frame)
                if count < frame.frame_bytes:
                    outbox.queue(buffer.frame, count, partial(self._give_back, buffer))
        except OSError as error:
            self._life.blame(self._connection.rank, error)  # the next call raises the end
            return
        finally:
            self._lock.release()
        if count == frame.frame_bytes:
            self._free.append(buffer)
        elif self._life.ending:
            self._life.leave()
        else:
            self._handed.set()

    def close(self, timeout_s: float) -> None:
        """After the ring's end: wait until the sender thread has left."""
        self._thread.join(timeout_s)

    def _unplanned(self, kind: Kind, round_: int, part: int, rows: int, payload_bytes: int) -> ProtocolError:
        asked = f"{kind.label} of part {part} of round {round_}: {rows} rows, {payload_bytes} bytes"
        implied = self._due[0] if self._due else "nothing more"
        return ProtocolError(ErrorCode.ROWS_LENGTH, f"asked to send {asked}; the plans imply {implied}")

    def _wait_for_buffer(self) -> None:
        started = time.monotonic()
        self.waiting = started
        while not self._free:
            self._life.check()
            self._returned.wait()
            self._returned.clear()
        self.waiting = None
        self._waits.send_s += time.monotonic() - started

    def _give_back(self, buffer: Buffer) -> None:
        self._free.append(buffer)
        self._returned.set()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._connection.sock, select.POLLOUT)
        with self._life.guard("the rows sender"):
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
        self._returned.set()
