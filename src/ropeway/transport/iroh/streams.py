"""Streams of bytes in the agent: QUIC streams and Unix sockets alike, one line at first, and pumped into each other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from ropeway.transport.lines import LINE_BYTES, decode_line, encode_line

PIECE_BYTES: Final = 256 << 10
"""Most bytes that are copied in one go, with nothing else done meanwhile."""


class StreamEnded(ConnectionError):
    """The stream broke, or ended where more had to come."""


class Stream(Protocol):
    """One end of a stream of bytes. One task at a time reads, and one writes."""

    async def read(self, limit: int) -> bytes:
        """At least one byte, at most `limit`; nothing at the end. Raises StreamEnded. A read that is cancelled may lose
        what it had read: that is for streams that are given up."""

    async def write(self, data: bytes) -> None:
        """Send all of it. Raises StreamEnded."""

    async def finish(self) -> None:
        """Say that nothing more comes; never raises."""

    def abandon(self) -> None:
        """Give both directions up at once; never raises."""


class SocketStream:
    """A Unix socket of a program on this machine."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def read(self, limit: int) -> bytes:
        try:
            return await self._loop.sock_recv(self._sock, limit)
        except OSError as error:
            raise StreamEnded(error.strerror or str(error)) from None

    async def write(self, data: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._sock, data)
        except OSError as error:
            raise StreamEnded(error.strerror or str(error)) from None

    async def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class QuicStream:
    """A bidirectional stream of a connection. `heard` is called whenever something has come."""

    def __init__(self, raw: Any, error: type[Exception], heard: Callable[[], None]) -> None:
        self._send, self._receive = raw.send(), raw.recv()
        self._error = error
        self._heard = heard
        self._finished = False

    async def read(self, limit: int) -> bytes:
        try:
            data = bytes(await self._receive.read(limit))
        except self._error as error:
            raise StreamEnded(_words(error)) from None
        self._heard()
        return data

    async def write(self, data: bytes) -> None:
        try:
            await self._send.write_all(data)
        except self._error as error:
            raise StreamEnded(_words(error)) from None

    async def finish(self) -> None:
        self._finished = True
        with contextlib.suppress(self._error):
            await self._send.finish()

    def abandon(self) -> None:
        """Reset what we send, unless all of it has been handed over; a read that waits must be cancelled as well."""
        if not self._finished:
            self._finished = True
            self._resetting = asyncio.ensure_future(self._reset())

    async def _reset(self) -> None:
        with contextlib.suppress(self._error):
            await self._send.reset(0)


def _words(error: Exception) -> str:
    message = getattr(error, "message", None)
    return str(message()) if callable(message) else str(error)


async def read_exactly(stream: Stream, count: int) -> bytes:
    """So many bytes. Raises StreamEnded."""
    data = bytearray()
    while len(data) < count:
        piece = await stream.read(count - len(data))
        if not piece:
            raise StreamEnded(f"the stream ended {count - len(data)} bytes early")
        data += piece
    return bytes(data)


class Lines:
    """The lines that open a stream, and the stream behind them: `rest` is what was read too early."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._rest = b""

    async def read_line(self) -> dict[str, Any] | None:
        """The next object; None at the end. Raises LineError, StreamEnded."""
        held = bytearray(self._rest)
        searched = 0
        while (end := held.find(b"\n", searched)) < 0:
            searched = len(held)
            if searched > LINE_BYTES:
                raise StreamEnded(f"a line of more than {LINE_BYTES} bytes")
            piece = await self.stream.read(4096)
            if not piece:
                if held:
                    raise StreamEnded("the stream ended in the middle of a line")
                return None
            held += piece
        self._rest = bytes(held[end + 1 :])
        return decode_line(held[: end + 1])

    async def write_line(self, value: dict[str, Any]) -> None:
        """Send one object. Raises LineError, StreamEnded."""
        await self.stream.write(encode_line(value))

    async def read(self, limit: int) -> bytes:
        """As the stream's `read`, beginning with what was read too early."""
        if self._rest:
            data, self._rest = self._rest[:limit], self._rest[limit:]
            return data
        return await self.stream.read(limit)

    async def write(self, data: bytes) -> None:
        """As the stream's."""
        await self.stream.write(data)

    async def finish(self) -> None:
        """As the stream's."""
        await self.stream.finish()

    def abandon(self) -> None:
        """As the stream's."""
        self.stream.abandon()


async def join(one: Stream, other: Stream) -> None:
    """Carry bytes both ways until both have ended; where one breaks, both do. Never raises for a broken stream."""
    there = asyncio.ensure_future(_pump(one, other))
    back = asyncio.ensure_future(_pump(other, one))
    try:
        done, left = await asyncio.wait((there, back), return_when=asyncio.FIRST_EXCEPTION)
        broken = any(task.exception() is not None for task in done)
        if broken:
            for task in left:
                task.cancel()  # given up, so nothing is lost that anybody wants
        await asyncio.gather(there, back, return_exceptions=True)
        for task in (there, back):
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, StreamEnded):
                raise error
    finally:
        for task in (there, back):
            task.cancel()
        one.abandon()
        other.abandon()


async def _pump(source: Stream, sink: Stream) -> None:
    while data := await source.read(PIECE_BYTES):
        await sink.write(data)
    await sink.finish()
