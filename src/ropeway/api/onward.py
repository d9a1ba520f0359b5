"""A request passed on to a replica's server, over an HTTP/1.1 connection of its own. Knows nothing of the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from starlette.types import Scope

from ropeway.api.errors import bad_request
from ropeway.serving.backends import Lost

Header = tuple[bytes, bytes]

HEAD_BYTES: Final = 64 << 10
"""Largest head of a reply, and most that is read of a replica before its client takes it."""
PIECE_BYTES: Final = 64 << 10
CONNECT_S: Final = 3.0
_HOP: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers that speak of one connection or of a body's framing, which is made anew, and the host, which is another."""
_BODILESS: Final = (204, 304)


@dataclass(frozen=True, slots=True)
class Request:
    """What is passed on. `body` is whole; of the headers only those that speak of the request are here."""

    method: bytes
    target: bytes
    headers: tuple[Header, ...]
    body: bytes

    @classmethod
    def of(cls, scope: Scope, body: bytes, leave_out: Iterable[bytes] = ()) -> Request:
        """Of an ASGI scope. The target is the very path that was judged, written anew. Raises ApiError (400)."""
        target = quote(scope["path"], safe="/:@!$&'()*+,;=-._~").encode()
        if query := scope["query_string"]:
            target += b"?" + query
        headers = tuple(end_to_end(scope["headers"], leave_out))
        odd = any(byte <= 0x20 or byte == 0x7F for byte in target)
        if odd or not target.startswith(b"/") or any(set(b"\r\n\0") & {*name, *value} for name, value in headers):
            raise bad_request("The request's head holds what no head may hold.", None, "bad_head")
        return cls(scope["method"].encode(), target, headers, body)

    def dump(self, host: str, more: Iterable[Header]) -> bytes:
        """As it goes to `host`, the only one on its connection; with `more` headers."""
        lines = [self.method + b" " + self.target + b" HTTP/1.1", b"host: " + host.encode()]
        lines += [name + b": " + value for name, value in (*self.headers, *more)]
        lines += [b"content-length: %d" % len(self.body), b"connection: close", b"", b""]
        return b"\r\n".join(lines) + self.body


def end_to_end(headers: Iterable[Header], leave_out: Iterable[bytes] = ()) -> list[Header]:
    """The headers that are not of one connection alone."""
    headers = list(headers)
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    left = _HOP | named | set(leave_out)
    return [(name, value) for name, value in headers if name not in left]


@dataclass(slots=True)
class Reply:
    """A replica's answer, whose body is still to be read."""

    status: int
    headers: list[Header]
    bodiless: bool
    """Whatever its head says, no body follows."""
    _reader: asyncio.StreamReader
    events: bool = field(init=False)

    def __post_init__(self) -> None:
        self.events = self._header(b"content-type").startswith(b"text/event-stream")

    def _header(self, name: bytes) -> bytes:
        return next((value for known, value in self.headers if known == name), b"")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises Lost where it is cut short."""
        if self.bodiless:
            return
        try:
            if self._header(b"transfer-encoding").lower() == b"chunked":
                while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    async for piece in self._exactly(size):
                        yield piece
                    await self._reader.readexactly(2)
            elif (length := self._header(b"content-length")).isdigit():
                async for piece in self._exactly(int(length)):
                    yield piece
            else:
                raise ValueError("it does not say how long it is")
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            raise Lost(f"its reply was cut short ({error or type(error).__name__})") from None

    async def _exactly(self, left: int) -> AsyncIterator[bytes]:
        if left < 0:
            raise ValueError("a length below zero")
        while left:
            piece = await self._reader.read(min(left, PIECE_BYTES))
            if not piece:
                raise EOFError("the connection has ended")
            left -= len(piece)
            yield piece

    async def whole(self, limit: int) -> bytes:
        """The body. Raises Lost, also where it is larger than `limit`."""
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > limit:
                raise Lost(f"its reply is larger than {limit} bytes")
        return bytes(body)


async def ask(
    request: Request, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], host: str, more: Iterable[Header]
) -> Reply:
    """Send a request; its reply, once the head is there. Raises Lost."""
    reader, writer = streams
    try:
        writer.write(request.dump(host, more))
        await writer.drain()
        status, headers = await _head(reader)
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
        raise Lost(f"it did not answer ({error or type(error).__name__})") from None
    return Reply(status, headers, request.method == b"HEAD" or status in _BODILESS, reader)


async def dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a replica. Raises Lost."""
    try:
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_connection(host, port, limit=HEAD_BYTES)
    except (OSError, TimeoutError) as error:
        raise Lost(f"it cannot be reached ({error or type(error).__name__})") from None


async def _head(reader: asyncio.StreamReader) -> tuple[int, list[Header]]:
    """Status and headers of the reply, what only announces it left out. Raises ValueError, EOFError, OSError."""
    while True:
        first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        version, status, *_ = [*first.split(b" ", 2), b""]
        if not version.startswith(b"HTTP/1.") or len(status) != 3 or not status.isdigit():
            raise ValueError("it does not speak HTTP/1.1")
        if int(status) >= 200:
            break
    return int(status), [(name.strip().lower(), value.strip()) for name, _, value in (x.partition(b":") for x in lines)]
