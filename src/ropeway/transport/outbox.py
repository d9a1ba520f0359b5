"""Frames on their way out of one socket, in order, without ever blocking."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ropeway.wire.link import Buffers


@dataclass(slots=True)
class _Item:
    """What is left of one frame, and what to call once it has left."""

    views: list[memoryview]
    sent: Callable[[], None] | None
    begun: bool = False


class Outbox:
    """A queue of frames before one socket. Not locked: the owner's lock is held around every call."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._queue: deque[_Item] = deque()
        self.sent_bytes = 0

    @property
    def pending(self) -> bool:
        """Something has not left yet."""
        return bool(self._queue)

    def push(self, frame: Buffers, sent: Callable[[], None] | None = None) -> bool:
        """Send a frame, or as much of it as the socket takes now; the rest waits for `flush`. True when all has left.

        `sent` is called once the frame's memory may be used again. Raises OSError when the connection is broken.
        """
        if self._queue:
            self.queue(frame, sent)
            return False
        try:
            count = self._sock.sendmsg(frame, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            count = 0
        self.sent_bytes += count
        size = sum(map(len, frame))
        if count == size:
            if sent is not None:
                sent()
            return True
        self.queue(frame, sent)
        self._advance(self._queue[0], count)
        return False

    def queue(self, frame: Buffers, sent: Callable[[], None] | None = None) -> None:
        """Put a frame behind the others without trying to send it."""
        self._queue.append(_Item([memoryview(piece) for piece in frame], sent))

    def flush(self) -> bool:
        """Send what the socket takes now. True when nothing is pending. Raises OSError for a broken connection."""
        while self._queue:
            item = self._queue[0]
            try:
                count = self._sock.sendmsg(item.views, (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            self.sent_bytes += count
            self._advance(item, count)
            if item.views:
                return False
            self._queue.popleft()
            if item.sent is not None:
                item.sent()
        return True

    def abandon(self) -> None:
        """Drop every frame that has not begun to leave: the ring ends, and only its fate is still worth sending."""
        if self._queue and self._queue[0].begun:
            first = self._queue[0]
            self._queue.clear()
            self._queue.append(first)
        else:
            self._queue.clear()

    @staticmethod
    def _advance(item: _Item, count: int) -> None:
        item.begun = item.begun or count > 0
        while item.views and count >= len(item.views[0]):
            count -= len(item.views.pop(0))
        if count:
            item.views[0] = item.views[0][count:]
