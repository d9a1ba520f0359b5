"""SIGINT and SIGTERM end a command in good order.

While there is no ring the first of them raises Interrupted in the main thread. Once there is one, it ends the ring, and
the main thread hears of that where it waits: an exception at any other place could be lost in a callback of the
engine, or leave a lock held. Where the main thread sits in a forward that lasts, a thread of this file ends the process
after some patience, or at once when the signal comes again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

PATIENCE_S: Final = 5.0
"""How long the main thread may take to come to its end."""
QUIET_S: Final = 1.0
"""After so long the person at the terminal is told what is being waited for."""


class Interrupted(KeyboardInterrupt):
    """Raised in the main thread; `status` is what the process leaves with, as shells write it: 128 and the number."""

    def __init__(self, number: int) -> None:
        self.status = 128 + number
        super().__init__("interrupted" if number == signal.SIGINT else "terminated")


class Interruption:
    """Whether the command has been interrupted, and what that ends."""

    def __init__(self) -> None:
        self._number = 0
        self._raised = False
        self._end: Callable[[], None] | None = None

    @property
    def cause(self) -> Interrupted | None:
        """The signal that has come, if any."""
        return Interrupted(self._number) if self._number else None

    def cover(self, end: Callable[[], None]) -> None:
        """From now on a signal raises nothing; `end` is called instead, by a thread of its own."""
        self._end = end
        if self._number:
            end()  # that thread came too early to find it

    def handle(self, number: int, _: FrameType | None) -> None:
        """A signal's handler, in the main thread. Raises Interrupted once, where nothing is covered."""
        self._number = self._number or number
        if self._end is None and not self._raised:
            self._raised = True
            raise Interrupted(number)

    def listen(self, ear: socket.socket, patience_s: float) -> None:
        """Wait for a signal's number, which the system's own handler writes, and then for the end of `ear`."""
        with ear:
            first = _byte_within(ear, None)
            if not first:
                return
            self._number = self._number or first
            if self._end is not None:
                self._end()
            again = _byte_within(ear, QUIET_S)
            if again is None:
                _say(f"{Interrupted(first)}, but a forward is running (once more to end at once)")
                again = _byte_within(ear, patience_s - QUIET_S)
            if again != 0:
                _say(str(Interrupted(first)))
                os._exit(Interrupted(first).status)


@contextlib.contextmanager
def interruptible(patience_s: float = PATIENCE_S, *, guarded: bool = True) -> Iterator[Interruption]:
    """Take both signals inside. Without `guarded` they just raise: for a main thread that never leaves Python."""
    interruption = Interruption()
    before = {number: signal.signal(number, interruption.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    with _guard(interruption, patience_s) if guarded else contextlib.nullcontext():
        try:
            yield interruption
        finally:
            for number, handler in before.items():
                # A process that was interrupted is at its end; a second signal has nothing to add.
                signal.signal(number, signal.SIG_IGN if interruption.cause else handler)


@contextlib.contextmanager
def _guard(interruption: Interruption, patience_s: float) -> Iterator[None]:
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=interruption.listen, args=(ear, patience_s), name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        mouth.close()


def _byte_within(ear: socket.socket, limit_s: float | None) -> int | None:
    """The next byte, 0 at the end, None when nothing has come in time."""
    ear.settimeout(limit_s)
    try:
        data = ear.recv(1)
    except TimeoutError:
        return None
    return data[0] if data else 0


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"ropeway: {text}\n".encode())
