"""A queue between the thread that watches and one that waits, which the ring's end empties of its meaning."""

from __future__ import annotations

import queue
from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, TypeVar

from ropeway.transport.life import Life
from ropeway.wire import Fate

T = TypeVar("T")


class _Mark(Enum):
    END = auto()


class Mailbox(Generic[T]):
    """First in, first out. After the ring's end `get` raises it, whatever is still inside."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._queue: queue.SimpleQueue[T | _Mark] = queue.SimpleQueue()
        life.on_end(lambda: self._queue.put(_Mark.END))

    def put(self, item: T) -> None:
        """Never blocks."""
        self._queue.put(item)

    def get(self) -> T:
        """The next item, however long it takes. Raises RingEnded."""
        self._life.check()
        return self._open(self._queue.get())

    def get_within(self, limit_s: float, late: Callable[[], Fate]) -> T:
        """The next item; when it does not come in time, the ring ends with the fate of `late`. Raises RingEnded."""
        self._life.check()
        try:
            return self._open(self._queue.get(timeout=max(limit_s, 0.0)))
        except queue.Empty:
            self._life.settle(late())
            self._life.leave()

    def get_all(self) -> list[T]:
        """What is there now, without waiting. Raises RingEnded."""
        self._life.check()
        items: list[T] = []
        try:
            while True:
                items.append(self._open(self._queue.get_nowait()))
        except queue.Empty:
            return items

    def _open(self, item: T | _Mark) -> T:
        if isinstance(item, _Mark):
            self._queue.put(item)
            self._life.leave()
        return item
