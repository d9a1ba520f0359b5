"""A way to wake a thread that sleeps in `poll`."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """Register `fileno()` for reading; `wake` from any thread makes it readable until `clear`."""

    def __init__(self) -> None:
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)

    def fileno(self) -> int:
        """What to poll."""
        return self._ear.fileno()

    def wake(self) -> None:
        """Never blocks; harmless after `close`."""
        with contextlib.suppress(OSError):
            self._mouth.send(b"\0")

    def clear(self) -> None:
        """Forget all wakes so far."""
        with contextlib.suppress(BlockingIOError):
            while self._ear.recv(64):
                pass

    def close(self) -> None:
        """Free both sockets."""
        self._ear.close()
        self._mouth.close()
