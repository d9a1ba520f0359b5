"""Signals of a run that must always tear down: they raise where a step waits, and nowhere else.

SIGINT, SIGTERM and SIGHUP count. Outside `open` a signal is only remembered, so neither a create that is under way nor
the teardown can be torn apart by one; the next `open` raises it. After the first one nothing is raised again.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal has gone"}


class Interrupted(KeyboardInterrupt):
    """Raised in the main thread, once."""


class Attention:
    """Whether a signal has come, and whether it may raise now. For the main thread."""

    def __init__(self) -> None:
        self._open = False
        self._raised = False
        self.number = 0
        """The first signal that has come, 0 for none."""

    @property
    def cause(self) -> Interrupted | None:
        """The signal that has come, if any."""
        return Interrupted(_WORDS[signal.Signals(self.number)]) if self.number else None

    def handle(self, number: int, _: FrameType | None) -> None:
        """A signal's handler. Raises Interrupted inside `open`."""
        self.number = self.number or number
        self._raise()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Signals may raise inside; one that has come before does at once."""
        self._open = True
        try:
            if self.number:
                self._raise()
            yield
        finally:
            self._open = False

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Inside `open`: nothing is raised inside; a signal that comes meanwhile is raised behind it, whether it has
        come to its end or failed."""
        self._open = False
        try:
            yield
        finally:
            self._open = True
            if self.number:
                self._raise()

    def _raise(self) -> None:
        if self._open and not self._raised and (cause := self.cause) is not None:
            self._open = False
            self._raised = True
            raise cause


@contextlib.contextmanager
def attentive() -> Iterator[Attention]:
    """Take the signals inside, but for a SIGHUP that nohup has turned off; they are as they were afterwards."""
    attention = Attention()
    taken = [n for n in NUMBERS if n is not signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, attention.handle) for number in taken}
    try:
        yield attention
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
