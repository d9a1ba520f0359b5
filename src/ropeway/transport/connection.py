"""One proved connection of the ring: its socket, its link, and what is on its way out."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from ropeway.transport.ending import CutShort
from ropeway.transport.outbox import Outbox
from ropeway.wire import Channel, ErrorCode, Event, Fate, FateKind, Link, ProtocolError, Side
from ropeway.wire.link import Buffers


class Connection:
    """One end of a connection to `rank`. `lock` guards the link's writing half and the outbox.

    One thread at a time reads. `address` is where the other end is, for messages.
    """

    def __init__(self, sock: socket.socket, link: Link, rank: int, channel: Channel, side: Side, address: str) -> None:
        self.sock = sock
        self.link = link
        self.rank = rank
        self.channel = channel
        self.side = side
        self.address = address
        self.lock = threading.Lock()
        self.outbox = Outbox(sock)
        self.received_bytes = 0
        self.heard_at = time.monotonic()
        """When the last frame was complete (time.monotonic)."""
        self.ended = False
        """Nothing more comes from there: closed by the peer, broken, or of no more interest."""

    @property
    def is_rows_in(self) -> bool:
        """Rows come in here. (The other end of a rows connection is where they go out.)"""
        return self.channel is Channel.ROWS and self.side is Side.ACCEPTOR

    def send(self, frame: Callable[[], Buffers]) -> bool:
        """Make a frame and send it in one go, so that frames leave in the order in which the link judged them.

        True when all of it has left; the watch flushes the rest. Raises ProtocolError (ours), OSError.
        """
        with self.lock:
            return self.outbox.push(b"".join(frame()))

    def flush(self) -> bool:
        """Send more of what is pending. True when nothing is. Raises OSError."""
        with self.lock:
            return self.outbox.flush()

    def hear(self, scratch: memoryview) -> Iterator[Event]:
        """Read once what has arrived, and give the events that it completes.

        Raises ProtocolError (theirs), OSError where the connection has ended, Closed where that was announced.
        """
        target = self.link.buffer()
        lent = len(target) > len(scratch)
        try:
            count = self.sock.recv_into(target if lent else scratch, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not count:
            check_end(self.link)
            raise Closed
        self.received_bytes += count
        if lent:
            event = self.link.received(count)
            events = iter(() if event is None else (event,))
        else:
            events = feed(self.link, scratch[:count])
        for event in events:
            self.heard_at = time.monotonic()
            yield event

    def say(self, fate: Fate) -> None:
        """Send the last word, at a failure instead of what has not begun to leave; never raises, never blocks."""
        with self.lock, contextlib.suppress(OSError, ProtocolError):
            if fate.what is FateKind.FAIL:
                self.outbox.abandon()
            if self.outbox.push(b"".join(self.link.send_fate(fate))):
                self.sock.shutdown(socket.SHUT_WR)

    def part(self, scratch: memoryview) -> bool:
        """After the ring's end: send what pends, close our half, throw away what comes. True once both are closed."""
        try:
            if not self.flush():
                return False
            self.sock.shutdown(socket.SHUT_WR)
            while not self.ended:
                self.ended = not self.sock.recv_into(scratch, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            self.ended = True
        return True

    def close(self) -> None:
        """Close the socket; never raises."""
        with contextlib.suppress(OSError):
            self.sock.close()


class Closed(Exception):
    """The peer has closed the connection, and had said before that it would."""


def check_end(link: Link) -> None:
    """A connection was closed: raise CutShort in mid-frame, ConnectionError where no fate has announced it."""
    try:
        link.eof()
    except ProtocolError as error:
        if error.code is ErrorCode.TRUNCATED:
            raise CutShort(error.detail) from None
        raise ConnectionError("its connection ended without a word") from None


def feed(link: Link, data: memoryview) -> Iterator[Event]:
    """Give a link bytes that were read elsewhere. Raises ProtocolError (theirs)."""
    while data:
        room = link.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        event = link.received(count)
        data = data[count:]
        if event is not None:
            yield event
