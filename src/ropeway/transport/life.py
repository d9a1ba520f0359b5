"""Whether the ring lives, shared by every thread of it: one place that ends it, and that all blocking calls ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from ropeway.transport.ending import RingEnded, Verdict, ended, failure, peer_failure
from ropeway.wire import ErrorCode, Fate, ProtocolError

PATIENCE_S: Final = 1.0
"""How long a thread that has met the end waits for the watch to declare it, before it does so itself."""


class Life:
    """One ring's life. `announce` sends a fate to every other rank and must not block."""

    def __init__(self, rank: int, addresses: tuple[str, ...], announce: Callable[[Fate], None]) -> None:
        self._rank = rank
        self._addresses = addresses
        self._announce = announce
        self._verdict = Verdict()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.ending = False
        """The cause is fixed; nothing but a fate may be sent from now on."""
        self.over = False
        """The ring has ended, and every other rank has been told as far as its buffers took it."""
        self._wakers: list[Callable[[], None]] = []

    def who(self, rank: int) -> str:
        """A rank with its address, for messages."""
        return f"rank {rank} ({self._addresses[rank]})" if rank < len(self._addresses) else f"rank {rank}"

    def on_end(self, wake: Callable[[], None]) -> None:
        """Call `wake`, which must not block, once the ring ends (at once if it has)."""
        with self._lock:
            late = self._verdict.settled is not None
            if not late:
                self._wakers.append(wake)
        if late:
            self.wait()
            wake()

    def settle(self, fate: Fate) -> None:
        """End the ring. The first cause is kept; before anybody can see the end, the other ranks have been told."""
        with self._lock:
            if not self._verdict.settle(fate):
                return
            self.ending = True
            wakers = list(self._wakers)
        try:
            self._announce(fate)
        finally:
            self.over = True
            self._over.set()
            for wake in wakers:
                wake()

    def suspect(self, fate: Fate) -> None:
        """A connection has ended without a word, and `fate` says so; one heard within the grace is preferred."""
        with self._lock:
            self._verdict.suspect(fate, time.monotonic())

    def blame(self, rank: int, error: ProtocolError | OSError) -> None:
        """What a connection to `rank` raised: a broken rule ends the ring, a bare end only makes it suspect."""
        fate = peer_failure(rank, self.who(rank), error)
        if isinstance(error, OSError):
            self.suspect(fate)
        else:
            self.settle(fate)

    def ripen(self, now: float) -> None:
        """End the ring by a suspicion whose grace is over."""
        with self._lock:
            fate = self._verdict.ripe(now)
        if fate is not None:
            self.settle(fate)

    def check(self) -> None:
        """Raise RingLost or RingStopped once the ring has ended."""
        if self.over:
            self.leave()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end. False when `timeout_s` passed first."""
        return self._over.wait(timeout_s)

    def leave(self) -> NoReturn:
        """Wait for the end that is certain to come, and raise it."""
        while not self._over.wait(PATIENCE_S):
            self.ripen(time.monotonic())
        assert self._verdict.settled is not None
        raise ended(self._verdict.settled)

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """A thread of the ring runs inside: it leaves quietly at the end, and a bug of ours ends the ring by name."""
        try:
            yield
        except RingEnded:
            return
        except BaseException as error:
            self.settle(
                failure(ErrorCode.ENGINE_FAILED, self._rank, f"{self.who(self._rank)}: {what} failed: {error!r}")
            )
            raise

    @property
    def fate(self) -> Fate | None:
        """The cause, once it is fixed."""
        return self._verdict.settled
