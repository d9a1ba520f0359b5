"""Frames on their way out of one socket, in order, without ever blocking."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Item:
    """What is left of one frame, and what to call once it has left."""

    rest: memoryview
    sent: Callable[[], None] | None
    begun: bool


class Outbox:
    """A queue of frames before one socket. Not locked: the owner's lock is held around every call."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.pending: deque[Item] = deque()
        """What has not left yet."""
        self.sent_bytes = 0

    def push(self, frame: bytes) -> bool:
        """Send a frame, or as much of it as the socket takes now; the rest waits for `flush`. True when all has left.

        Raises OSError for a broken connection.
        """
        count = self.offer(frame)
        if count == len(frame):
            return True
        self.queue(memoryview(frame), count)
        return False

    def offer(self, frame: bytes | memoryview) -> int:
        """Send as much of a frame as the socket takes now; gives its bytes. What is left must be put in by `queue`."""
        if self.pending:
            return 0
        try:
            count = self._sock.send(frame, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        self.sent_bytes += count
        return count

    def queue(self, frame: memoryview, count: int = 0, sent: Callable[[], None] | None = None) -> None:
        """Put a frame, of which `count` bytes have left, behind the others.

        `sent` is called once the frame's memory may be used again.
        """
        self.pending.append(Item(frame[count:], sent, count > 0))

    def flush(self) -> bool:
        """Send what the socket takes now. True when nothing is pending. Raises OSError for a broken connection."""
        while self.pending:
            item = self.pending[0]
            try:
                count = self._sock.send(item.rest, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            self.sent_bytes += count
            item.begun = True
            item.rest = item.rest[count:]
            if item.rest:
                continue
            self.pending.popleft()
            if item.sent is not None:
                item.sent()
        return True

    def abandon(self) -> None:
        """Drop every frame that has not begun to leave: the ring ends, and only its fate is still worth sending."""
        first = self.pending[0] if self.pending and self.pending[0].begun else None
        self.pending.clear()
        if first is not None:
            self.pending.append(first)
