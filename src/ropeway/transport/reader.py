"""Reading expected frames from a rows connection with blocking calls: the header is compared, not decoded.

A plan says what comes next to the last bit of the header, so the link, which judges everything else, is asked only when
the 32 bytes are not the expected ones: then they are a fate, or a mistake that it names.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import NoReturn

from ropeway.transport.connection import Connection, check_end, feed
from ropeway.transport.edges import Frame
from ropeway.transport.ending import CutShort
from ropeway.transport.life import Life
from ropeway.wire import HEADER_BYTES, ErrorCode, Event, Header, Kind, ProtocolError, decode_header

_EARLY: tuple[int, ...] = (Kind.ROWS, Kind.TOKENS)


class Reader:
    """Reads one rows connection, one caller at a time. `hear` gets the events that are neither rows nor tokens."""

    def __init__(self, connection: Connection, life: Life, hear: Callable[[Connection, Event], None]) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._life = life
        self._hear = hear
        self._head = memoryview(bytearray(HEADER_BYTES))
        self._left = b""
        """Bytes that were read behind a fate that did not end the connection."""
        self.holds_header = False
        """A rows header was read before its plan was known, and belongs to the next frame."""

    def fill(self, frame: Frame, room: memoryview) -> None:
        """Read `frame` into `room`, which has its payload's size. Raises RingEnded."""
        try:
            got = self._come_to(frame, room)
            while got < len(room):
                count = self._sock.recv_into(room[got:], 0, socket.MSG_WAITALL)
                if not count:
                    raise _short(len(room) - got, str(frame))
                got += count
        except (ProtocolError, OSError) as error:
            self._end(error)
        self._connection.received_bytes += HEADER_BYTES + len(room)
        self._connection.heard_at = time.monotonic()

    def listen(self) -> None:
        """Read what has come while no plan expects anything: a fate, the connection's end, or an early header."""
        try:
            self._read_head(self._head[:0])
            if self._head[6] in _EARLY:
                self.holds_header = True
            else:
                self._judge(None, self._head[:0])
        except (ProtocolError, OSError) as error:
            self._end(error)

    def _come_to(self, frame: Frame, room: memoryview) -> int:
        """Read up to the frame's header. Gives how many bytes of the payload came with it."""
        while True:
            got = 0
            if self.holds_header:
                self.holds_header = False
            else:
                got = self._read_head(room)
            if self._head == frame.header:
                return got
            self._judge(frame, room[:got])

    def _read_head(self, room: memoryview) -> int:
        """Read a header, and in the same call as much of the payload as is there. Gives the payload bytes."""
        if self._left:
            return self._replay(room)
        got = self._sock.recvmsg_into((self._head, room))[0]
        if not got:
            check_end(self._connection.link)
            self._life.leave()
        while got < HEADER_BYTES:
            count = self._sock.recvmsg_into((self._head[got:], room))[0]
            if not count:
                raise _short(HEADER_BYTES - got, "a header")
            got += count
        return got - HEADER_BYTES

    def _replay(self, room: memoryview) -> int:
        """The same from bytes that were read too early."""
        left, self._left = self._left, b""
        while len(left) < HEADER_BYTES:
            more = self._sock.recv(HEADER_BYTES - len(left))
            if not more:
                raise _short(HEADER_BYTES - len(left), "a header")
            left += more
        self._head[:] = left[:HEADER_BYTES]
        body = left[HEADER_BYTES : HEADER_BYTES + len(room)]
        room[: len(body)] = body
        self._left = left[HEADER_BYTES + len(body) :]
        return len(body)

    def _judge(self, frame: Frame | None, more: memoryview) -> None:
        """A header that is not the expected one; `more` bytes came behind it. Raises ProtocolError or RingEnded."""
        header = decode_header(self._head)
        if frame is not None and header.kind in _EARLY:
            raise _mismatch(frame, header)
        link = self._connection.link
        self._left = bytes(more[header.length :])
        body = bytes(more[: header.length])
        for piece in (self._head, memoryview(body)):
            for event in feed(link, piece):
                self._hear(self._connection, event)
        missing = header.length - len(body)
        while missing:
            count = self._sock.recv_into(link.buffer())
            if not count:
                check_end(link)
            missing -= count
            last = link.received(count)
            if last is not None:
                self._hear(self._connection, last)
        self._connection.heard_at = time.monotonic()
        self._life.check()

    def _end(self, error: ProtocolError | OSError) -> NoReturn:
        """The connection is over; a fate that comes another way may still explain it."""
        self._life.blame(self._connection.rank, error)
        self._life.leave()


def _short(missing: int, what: str) -> CutShort:
    return CutShort(f"its connection ended {missing} bytes short of {what}")


def _mismatch(frame: Frame, header: Header) -> ProtocolError:
    """Name the first thing in which rows or tokens are not what the plan implies."""
    if header.round != frame.round:
        return ProtocolError(ErrorCode.ROUND_ORDER, f"round is {header.round}, the plan implies {frame}", 8)
    if header.kind is not frame.kind:
        return ProtocolError(ErrorCode.ILLEGAL_FRAME, f"a {header.kind.label} frame, the plan implies {frame}", 6)
    if header.part != frame.part:
        return ProtocolError(ErrorCode.ROUND_ORDER, f"part is {header.part}, the plan implies {frame}", 20)
    code = ErrorCode.ROWS_LENGTH if frame.kind is Kind.ROWS else ErrorCode.TOKEN_COUNT
    return ProtocolError(code, f"{header.rows} rows in {header.length} bytes, the plan implies {frame}", 24)
