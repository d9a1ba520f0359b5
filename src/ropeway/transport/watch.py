"""The thread that watches: it reads every connection but the rows that come in, flushes what did not leave at once,
keeps the timers, and parts from the peers in the end. It never blocks on one.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ropeway.transport.connection import Closed, Connection
from ropeway.transport.life import Life
from ropeway.transport.waker import Waker
from ropeway.wire import Channel, Event, ProtocolError

TICK_S: Final = 0.1
"""How often the timers are looked at."""
FAREWELL_S: Final = 0.3
"""How long the last words may take to leave, and the peers to close, before sockets are closed."""
SCRATCH_BYTES: Final = 64 << 10


class Watch:
    """`hear` gets every event, `tick` the time ten times a second, `finish` runs last, with nothing left to send."""

    def __init__(
        self,
        life: Life,
        hear: Callable[[Connection, Event], None],
        tick: Callable[[float], None],
        finish: Callable[[], None],
    ) -> None:
        self._life = life
        self._hear = hear
        self._tick = tick
        self._finish = finish
        self._waker = Waker()
        self._poller = select.poll()
        self._new: deque[Connection] = deque()
        self._connections: dict[int, Connection] = {}
        self._masks: dict[int, int] = {}
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._thread = threading.Thread(target=self._run, name="ropeway watch", daemon=True)
        life.on_end(self._waker.wake)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, connection: Connection) -> None:
        """Watch a connection from now on (one that brings rows in only to part from it)."""
        self._new.append(connection)
        self._waker.wake()

    def wake(self) -> None:
        """Something pends in an outbox."""
        self._waker.wake()

    def join(self, timeout_s: float) -> None:
        """Wait until the ring is closed."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        self._poller.register(self._waker, select.POLLIN)
        try:
            with self._life.guard("the watch"):
                while True:
                    self._life.check()
                    self._step()
        finally:
            self._part()
            self._finish()
            self._waker.close()

    def _step(self) -> None:
        self._take_new()
        self._set_masks()
        for fd, _ in self._poller.poll(TICK_S * 1e3):
            if fd in self._masks:
                self._serve(self._connections[fd])
            else:
                self._waker.clear()
        now = time.monotonic()
        self._tick(now)
        self._life.ripen(now)

    def _take_new(self) -> None:
        while self._new:
            connection = self._new.popleft()
            self._connections[connection.sock.fileno()] = connection

    def _set_masks(self) -> None:
        """Poll each connection for reading, and for writing where something pends that no other thread sends."""
        for fd, connection in self._connections.items():
            if connection.is_rows_in or connection.ended:
                continue
            pends = connection.channel is Channel.CONTROL and connection.outbox.pending
            mask = select.POLLIN | (select.POLLOUT if pends else 0)
            if self._masks.get(fd) != mask:
                self._masks[fd] = mask
                self._poller.register(fd, mask)

    def _serve(self, connection: Connection) -> None:
        try:
            if connection.channel is Channel.CONTROL:
                connection.flush()
            for event in connection.hear(self._scratch):
                self._hear(connection, event)
        except Closed:
            self._forget(connection)
        except (ProtocolError, OSError) as error:
            self._forget(connection)
            self._life.blame(connection.rank, error)

    def _forget(self, connection: Connection) -> None:
        """Nothing more comes from there."""
        connection.ended = True
        fd = connection.sock.fileno()
        del self._masks[fd]
        self._poller.unregister(fd)

    def _part(self) -> None:
        """Let the last words leave and wait a little for the peers to close.

        A socket that is closed over unread bytes sends a reset, which can swallow what its peer has not read yet.
        """
        self._take_new()
        deadline = time.monotonic() + FAREWELL_S
        waiting = list(self._connections.values())
        while waiting := [connection for connection in waiting if not connection.part(self._scratch)]:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            poller = select.poll()
            for connection in waiting:
                poller.register(
                    connection.sock,
                    (0 if connection.ended else select.POLLIN) | (select.POLLOUT if connection.outbox.pending else 0),
                )
            poller.poll(left * 1e3)
