"""SIGINT and SIGTERM end a command in good order: the first raises Interrupted in the main thread.

The main thread may sit in a forward that lasts, where no handler of Python's runs; so a thread of this file ends the
process after some patience, or at once when the signal comes again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

PATIENCE_S: Final = 5.0
"""How long the main thread may take to come to its end."""


class Interrupted(KeyboardInterrupt):
    """Raised in the main thread; `status` is what the process leaves with, as shells write it: 128 and the number."""

    def __init__(self, number: int) -> None:
        self.status = 128 + number
        super().__init__(_words(number))


def _words(number: int) -> str:
    return "interrupted" if number == signal.SIGINT else "terminated"


@contextlib.contextmanager
def interruptible(patience_s: float = PATIENCE_S, *, guarded: bool = True) -> Iterator[None]:
    """Have both signals raise Interrupted inside. Without `guarded` the main thread is trusted to come to its end."""
    raised = False

    def interrupt(number: int, _: FrameType | None) -> None:
        nonlocal raised
        if not raised:  # what is being put away must not be interrupted
            raised = True
            raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    with _guard(patience_s) if guarded else contextlib.nullcontext():
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if raised else handler)  # raised: the process is at its end


@contextlib.contextmanager
def _guard(patience_s: float) -> Iterator[None]:
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(ear, patience_s), name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        mouth.close()


def _listen(ear: socket.socket, patience_s: float) -> None:
    """Wait for a signal's number, which the system's own handler writes, and then for the main thread to end."""
    with ear:
        first = ear.recv(1)
        if not first:
            return
        ear.settimeout(patience_s)
        try:
            again = ear.recv(1)
        except TimeoutError:
            again = first
        if again:
            with contextlib.suppress(OSError):
                os.write(2, f"ropeway: {_words(first[0])}\n".encode())
            os._exit(128 + first[0])
