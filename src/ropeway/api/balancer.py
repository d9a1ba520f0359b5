"""One address before several replicas: the least busy one answers, and a refusal is tried on another in time.

Pure ASGI over plain HTTP/1.1 connections, one a request. Replicas check keys and bodies themselves; here nothing is
known of the API but that 503 means "not here, not now", and what ends a stream of events.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ropeway.api.errors import ApiError, ring_unavailable

BODY_BYTES: Final = 64 << 20
"""Largest request that is passed on."""
HEAD_BYTES: Final = 64 << 10
CONNECT_S: Final = 3.0
PIECE_BYTES: Final = 64 << 10
RETRY_S: Final = 2
_HOP: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"host"})
"""Headers that belong to one connection, and the host, which is the replica's."""
_REFUSED: Final = 503


@dataclass(eq=False, slots=True)
class Backend:
    """A replica's server at HOST:PORT. `ready` is what its owner last saw, `busy` the requests that it has of us."""

    name: str
    host: str
    port: int
    ready: bool = True
    busy: int = 0


class Lost(ConnectionError):
    """A replica's connection broke, or it does not speak HTTP."""


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
        """A replica has gone."""
        with self._lock:
            self.missing = why
            if backend in self._all:
                self._all.remove(backend)

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


@dataclass(slots=True)
class _Reply:
    """A replica's answer, whose body is still to be read."""

    status: int
    headers: list[tuple[bytes, bytes]]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    events: bool = field(init=False)

    def __post_init__(self) -> None:
        kinds = [value for name, value in self.headers if name == b"content-type"]
        self.events = bool(kinds) and kinds[0].startswith(b"text/event-stream")

    def header(self, name: bytes) -> bytes:
        """One header, or nothing."""
        return next((value for known, value in self.headers if known == name), b"")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises Lost where it is cut short."""
        try:
            if self.header(b"transfer-encoding").lower() == b"chunked":
                while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    yield (await self.reader.readexactly(size + 2))[:-2]
                return
            left = int(self.header(b"content-length") or -1)
            while left and (piece := await self.reader.read(PIECE_BYTES if left < 0 else min(left, PIECE_BYTES))):
                left -= len(piece) if left > 0 else 0
                yield piece
            if left > 0:
                raise Lost("its reply was cut short")
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise Lost(f"its reply was cut short: {error!r}") from None


class Balancer:
    """The ASGI application before `backends`."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        if scope["path"] == "/health":
            await _say(send, 200, {"status": "alive"})
            return
        try:
            if scope["path"] == "/ready":
                await self._ready(send)
            else:
                await self._pass_on(scope, await _read_body(receive), receive, send)
        except ApiError as error:
            response: ASGIApp = error.response()
            await response(scope, receive, send)

    async def _ready(self, send: Send) -> None:
        backends = self._backends.all()
        ready = [backend.name for backend in backends if backend.ready]
        if not ready:
            raise ring_unavailable(f"No replica is ready: {self._backends.missing}", RETRY_S)
        await _say(send, 200, {"status": "ready", "replicas": ready})

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Try replicas until one answers with something else than 503, and give its answer. Raises ApiError."""
        tried: set[Backend] = set()
        refusal: tuple[int, list[tuple[bytes, bytes]], bytes] | None = None
        why = self._backends.missing
        while (backend := self._backends.choose(tried)) is not None:
            tried.add(backend)
            try:
                reply = await _ask(backend, scope, body)
                try:
                    if reply.status == _REFUSED:
                        refusal = reply.status, reply.headers, b"".join([piece async for piece in reply.pieces()])
                        continue
                    await _give(reply, receive, send)
                    return
                finally:
                    reply.writer.close()
            except Lost as error:
                why = f"{backend.name}: {error}"
            finally:
                self._backends.release(backend)
        if refusal is None:
            raise ring_unavailable(f"No replica can answer: {why}", RETRY_S)
        status, headers, content = refusal
        await send({"type": "http.response.start", "status": status, "headers": _end_to_end(headers, len(content))})
        await send({"type": "http.response.body", "body": content})


async def _ask(backend: Backend, scope: Scope, body: bytes) -> _Reply:
    """Send a request; the reply once its head is there. Raises Lost."""
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(backend.host, backend.port, limit=HEAD_BYTES), CONNECT_S
        )
    except (OSError, TimeoutError) as error:
        raise Lost(f"it cannot be reached: {error}") from None
    try:
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        lines = [scope["method"].encode() + b" " + target + b" HTTP/1.1"]
        lines.append(f"host: {backend.host}:{backend.port}".encode())
        lines += [name + b": " + value for name, value in scope["headers"] if name not in {*_HOP, b"content-length"}]
        lines += [b"content-length: %d" % len(body), b"connection: close", b"", b""]
        writer.write(b"\r\n".join(lines) + body)
        await writer.drain()
        return _Reply(*_head(await reader.readuntil(b"\r\n\r\n")), reader, writer)
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        writer.close()
        raise Lost(f"it did not answer: {error!r}") from None
    except BaseException:
        writer.close()
        raise


def _head(raw: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Status and headers. Raises ValueError."""
    first, *lines = raw[:-4].split(b"\r\n")
    version, status, *_ = first.split(b" ", 2)
    if not version.startswith(b"HTTP/1."):
        raise ValueError("it does not speak HTTP/1.1")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    return int(status), headers


async def _give(reply: _Reply, receive: Receive, send: Send) -> None:
    """Pass a reply on as it comes, until its client hangs up; a stream of events that breaks ends by an error event."""
    length = reply.header(b"content-length")
    headers = _end_to_end(reply.headers, int(length) if length else None)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    gone = asyncio.ensure_future(_hung_up(receive))
    gone.add_done_callback(lambda _: reply.writer.close())
    try:
        async for piece in reply.pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except Lost as error:
        if gone.done():
            return
        if not reply.events:
            raise  # the server closes the connection: no client takes this for a whole reply
        last = b"data: " + to_json(ring_unavailable(f"The replica was lost: {error}").body()) + b"\n\n"
        await send({"type": "http.response.body", "body": last})
    finally:
        gone.cancel()


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _end_to_end(headers: list[tuple[bytes, bytes]], length: int | None) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name not in _HOP and name != b"content-length"]
    return kept if length is None else [*kept, (b"content-length", b"%d" % length)]


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    more = True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError(400, "invalid_request_error", "The request was cut short.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY_BYTES:
            raise ApiError(413, "invalid_request_error", f"A request has at most {BODY_BYTES} bytes.")
    return bytes(body)


async def _say(send: Send, status: int, value: dict[str, object]) -> None:
    content = to_json(value)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    with contextlib.suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})
