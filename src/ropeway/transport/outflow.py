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
        self._lent: deque[tuple[Frame, Buffer]] = deque()
        self._handed = threading.Event()
        self.waiting: float | None = None
        """Since when the caller waits for a buffer (time.monotonic)."""
        connection.sock.setblocking(False)
        self._poller = select.poll()
        self._poller.register(connection.sock, select.POLLOUT)
        self._thread = threading.Thread(target=self._run, name="ropeway rows sender", daemon=True)
        life.on_end(self._wake)
        self._thread.start()

    def expect(self, frames: list[Frame]) -> None:
        """A plan is known: these frames have to be sent after those that are due already."""
        self._due.extend(frames)

    def lend(self, payload_bytes: int) -> memoryview:
        """Memory for the payload of the next frame that is due. Waits while both buffers are in flight.

        Raises RingEnded, or ProtocolError (`rows_length`, ours) where the plans imply another size.
        """
        frame = self._due[0] if self._due else None
        if frame is None or frame.payload_bytes != payload_bytes:
            implied = frame or "nothing more"
            raise ProtocolError(
                ErrorCode.ROWS_LENGTH, f"asked for {payload_bytes} bytes to send, the plans imply {implied}"
            )
        if not self._free:
            self._wait_for_buffer()
        buffer = self._free.pop()
        buffer.fit(payload_bytes)
        buffer.memory[HEADER_AT:PAYLOAD_AT] = frame.header
        self._lent.append((self._due.popleft(), buffer))
        return buffer.payload

    def send(self, kind: Kind, round_: int, part: int, rows: int, payload: memoryview) -> None:
        """Send the frame whose buffer was lent first. Raises RingEnded, or ProtocolError (`rows_length`, ours)."""
        assert self._lent, "a buffer must be lent before it is sent"
        frame, buffer = self._lent[0]
        assert payload is buffer.payload, "send buffers leave whole, and in the order in which they were lent"
        if frame.part != part or frame.round != round_ or frame.rows != rows or frame.kind is not kind:
            asked = f"{kind.label} of part {part} of round {round_} with {rows} rows"
            raise ProtocolError(ErrorCode.ROWS_LENGTH, f"asked to send {asked}, the plans imply {frame}")
        self._lent.popleft()
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
        with self._life.guard("the rows sender"):
            while True:
                self._handed.wait()
                self._handed.clear()
                try:
                    while not self._life.over and not self._connection.flush():
                        self._poller.poll(LOOK_S * 1e3)
                except OSError as error:
                    self._life.blame(self._connection.rank, error)
                self._life.check()

    def _wake(self) -> None:
        self._handed.set()
        self._returned.set()
