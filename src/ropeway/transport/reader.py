"""Reading expected frames from a rows connection with blocking calls: the header is compared, not decoded.

A plan says what comes next to the last bit of the header, so the link, which judges everything else, is asked only when
the 32 bytes are not the expected ones: then they are a fate, or a mistake that it names.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import NoReturn

from ropeway.transport.buffer import HEADER_AT, PAYLOAD_AT, Buffer
from ropeway.transport.connection import Connection, check_end, feed
from ropeway.transport.edges import Frame
from ropeway.transport.ending import CutShort
from ropeway.transport.life import Life
from ropeway.wire import HEADER_BYTES, ErrorCode, Event, Header, Kind, ProtocolError, decode_header

_PLANNED: tuple[int, ...] = (Kind.ROWS, Kind.TOKENS)


class Reader:
    """Reads one rows connection, one caller at a time. `hear` gets the events that are neither rows nor tokens."""

    def __init__(self, connection: Connection, life: Life, hear: Callable[[Connection, Event], None]) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._life = life
        self._hear = hear
        self._left = b""
        """Bytes that were read too early: a header whose plan was not known, or what stood behind a fate."""

    @property
    def holds_early(self) -> bool:
        """Something was read already that waits for its plan."""
        return bool(self._left)

    def fill(self, frame: Frame, buffer: Buffer) -> None:
        """Read `frame` into a buffer of its size. Raises RingEnded."""
        try:
            # Header and payload in one call: the size is known, and each call is a trip through the interpreter lock.
            got = 0 if self._left else self._sock.recv_into(buffer.frame)
            if got != frame.frame_bytes or buffer.memory[HEADER_AT:PAYLOAD_AT] != frame.header:
                self._fill_slowly(frame, buffer, got)
        except (ProtocolError, OSError) as error:
            self._end(error)

    def listen(self) -> None:
        """Read what has come while no plan expects anything: a fate, the connection's end, or an early header."""
        head = Buffer(0)
        try:
            self._fill_up(head.frame, self._sock.recv_into(head.frame), HEADER_BYTES, "a header")
            header = head.memory[HEADER_AT:PAYLOAD_AT]
            if header[6] in _PLANNED:
                self._left = header
            else:
                self._judge(header, b"")
        except (ProtocolError, OSError) as error:
            self._end(error)

    def _fill_slowly(self, frame: Frame, buffer: Buffer, got: int) -> None:
        """`got` bytes of the buffer's frame are there, which need not be the expected one."""
        if self._left:
            got = self._replay(buffer.frame)
        while True:
            got = self._fill_up(buffer.frame, got, HEADER_BYTES, "a header")
            head = buffer.memory[HEADER_AT:PAYLOAD_AT]
            if head == frame.header:
                self._fill_up(buffer.frame, got, frame.frame_bytes, str(frame))
                return
            header = decode_header(head)
            if header.kind in _PLANNED:
                raise _mismatch(frame, header)
            self._judge(head, bytes(buffer.payload[: got - HEADER_BYTES]))
            got = self._replay(buffer.frame)

    def _fill_up(self, room: memoryview, got: int, size: int, what: str) -> int:
        """Read on until at least `size` of `room` are there; gives how many are."""
        while got < size:
            # All of a large payload in one call, where the system can; a header alone comes with what is behind it.
            flags = socket.MSG_WAITALL if size == len(room) else 0
            count = self._sock.recv_into(room[got:], 0, flags)
            if not count:
                if got:
                    raise CutShort(f"its connection ended {size - got} bytes short of {what}")
                check_end(self._connection.link)  # raises, unless the peer has said that it leaves
                self._life.leave()
            got += count
        return got

    def _replay(self, room: memoryview) -> int:
        """Put bytes that were read too early where they belong; gives how many."""
        count = min(len(self._left), len(room))
        room[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _judge(self, head: bytes, more: bytes) -> None:
        """Let the link judge a header that is of neither rows nor tokens; `more` bytes came behind it.

        Raises ProtocolError (theirs), or RingEnded for a fate.
        """
        length = decode_header(head).length
        link = self._connection.link
        self._left = more[length:]
        for piece in (head, more[:length]):
            for event in feed(link, memoryview(piece)):
                self._hear(self._connection, event)
        missing = length - len(more)
        while missing > 0:
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
