"""Replicas of a ring behind one address, as those who keep them and those who ask them see them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


class Lost(ConnectionError):
    """A replica cannot be reached, its connection broke, or it does not speak HTTP/1.1."""


@dataclass(eq=False, slots=True)
class Backend:
    """A replica's server at HOST:PORT. `ready` is what its owner last saw, `busy` the requests that it has of us."""

    name: str
    host: str
    port: int
    ready: bool = True
    key: str = field(default="", repr=False)
    """The API key that it asks for."""
    busy: int = 0
    gone: str = ""
    """Why it was taken out."""
    cuts: set[Callable[[], object]] = field(default_factory=set, repr=False)
    """What breaks its connections, from any thread."""


class Backends:
    """The replicas that are there. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Backend] = []
        self.missing = "no replica is ready yet"
        """Why there is none, for people."""

    def put(self, backend: Backend) -> None:
        """Take a replica in."""
        with self._lock:
            self._all.append(backend)

    def take_out(self, backend: Backend, why: str) -> None:
        """A replica has gone, and what it has of us ends: a machine that is cut off says nothing by itself."""
        with self._lock:
            self.missing = backend.gone = why
            if backend in self._all:
                self._all.remove(backend)
            for cut in backend.cuts:
                with contextlib.suppress(RuntimeError):  # the event loop has ended, and the connection with it
                    cut()

    def all(self) -> list[Backend]:
        """Every replica."""
        with self._lock:
            return list(self._all)

    def choose(self, tried: set[Backend]) -> Backend | None:
        """The least busy of those that are ready and were not tried; the one that came first of equals."""
        with self._lock:
            left = [backend for backend in self._all if backend.ready and backend not in tried]
            chosen = min(left, key=lambda backend: backend.busy, default=None)
            if chosen is not None:
                chosen.busy += 1
            return chosen

    def release(self, backend: Backend) -> None:
        """A request has ended."""
        with self._lock:
            backend.busy -= 1

    @contextlib.contextmanager
    def breaking(self, backend: Backend, cut: Callable[[], object]) -> Iterator[None]:
        """Have `cut` called when the replica is taken out. Raises Lost where it has been."""
        with self._lock:
            if backend.gone:
                raise Lost(backend.gone)
            backend.cuts.add(cut)
        try:
            yield
        finally:
            with self._lock:
                backend.cuts.discard(cut)
