"""One address before several replicas: the least busy one answers, and a refusal is tried on another in time.

Pure ASGI. Requests are judged here, as one replica would (Host, key, size), so that replicas need nobody's key but our
own; of their API no more is known than that 503 means "not here, not now", and what ends a stream of events. A reply
that is no stream of events is read whole before it is passed on, so a client never gets a part of one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Final

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from ropeway.api.errors import ApiError, ring_unavailable
from ropeway.api.guard import judge
from ropeway.api.onward import Header, Reply, Request, ask, dial, end_to_end
from ropeway.api.settings import Settings
from ropeway.serving.backends import Backend, Backends, Lost

REPLY_BYTES: Final = 64 << 20
"""Largest reply that is passed on, and largest event of a stream."""
RETRY_S: Final = 2
_REFUSED: Final = 503
_EVENT_END: Final = b"\n\n"


class Balancer:
    """The ASGI application before `backends`. `context` bounds what a body may be, with the settings."""

    def __init__(self, backends: Backends, settings: Settings, context: int) -> None:
        self._backends = backends
        self._settings = settings
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        try:
            body = await judge(scope, receive, self._settings, self._context)
            if scope["path"] == "/health":
                await _say(send, 200, _JSON, to_json({"status": "alive"}))
            elif scope["path"] == "/ready":
                await self._ready(send)
            else:
                await _until_hangup(receive, self._pass_on(Request.of(scope, body, [b"authorization"]), send))
        except ApiError as error:
            await error.response()(scope, receive, send)

    async def _ready(self, send: Send) -> None:
        ready = [backend.name for backend in self._backends.all() if backend.ready]
        if not ready:
            raise ring_unavailable(f"No replica is ready: {self._backends.missing}", RETRY_S)
        await _say(send, 200, _JSON, to_json({"status": "ready", "replicas": ready}))

    async def _pass_on(self, request: Request, send: Send) -> None:
        """Try replicas until one answers with something else than 503, and give its answer. Raises ApiError."""
        tried: set[Backend] = set()
        refusal: tuple[list[Header], bytes] | None = None
        why = self._backends.missing
        while (backend := self._backends.choose(tried)) is not None:
            tried.add(backend)
            try:
                async with self._asked(backend, request) as reply:
                    if reply.events and reply.status != _REFUSED:
                        await _give_events(backend, reply, send)
                        return
                    content = await reply.whole(REPLY_BYTES)
                if reply.status == _REFUSED:
                    refusal = reply.headers, content
                    continue
                headers = end_to_end(reply.headers, [b"date"])
                await _say(send, reply.status, headers, None if reply.bodiless else content)
                return
            except Lost as error:
                why = f"{backend.name}: {backend.gone or error}"
            finally:
                self._backends.release(backend)
        if refusal is None:
            raise ring_unavailable(f"No replica can answer: {why}", RETRY_S)
        await _say(send, _REFUSED, end_to_end(refusal[0], [b"date"]), refusal[1])

    @contextlib.asynccontextmanager
    async def _asked(self, backend: Backend, request: Request) -> AsyncIterator[Reply]:
        """The replica's reply, until the replica is taken out. Raises Lost."""
        try:
            streams = await dial(backend.host, backend.port)
        except Lost:
            backend.ready = False  # until its owner has seen it again
            raise
        abort, loop = streams[1].transport.abort, asyncio.get_running_loop()
        key = [(b"authorization", b"Bearer " + backend.key.encode())] if backend.key else []
        try:
            with self._backends.breaking(backend, lambda: loop.call_soon_threadsafe(abort)):
                yield await ask(request, streams, f"{backend.host}:{backend.port}", key)
        finally:
            abort()  # whatever is still on its way: nobody reads it


_JSON: Final[list[Header]] = [(b"content-type", b"application/json")]


async def _give_events(backend: Backend, reply: Reply, send: Send) -> None:
    """Pass a stream on by whole events; one that breaks ends by an error event, and without [DONE]."""
    headers = end_to_end(reply.headers, [b"date"])
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    held = bytearray()
    try:
        async for piece in reply.pieces():
            held += piece
            if end := held.rfind(_EVENT_END, max(0, len(held) - len(piece) - 1)) + 1:
                whole = bytes(held[: end + 1])
                del held[: end + 1]
                await send({"type": "http.response.body", "body": whole, "more_body": True})
            elif len(held) > REPLY_BYTES:
                raise Lost(f"an event is larger than {REPLY_BYTES} bytes")
        last = bytes(held)
    except Lost as error:
        lost = ring_unavailable(f"The replica was lost: {backend.name}: {backend.gone or error}")
        last = b"data: " + to_json(lost.body()) + _EVENT_END
    await send({"type": "http.response.body", "body": last})


async def _until_hangup(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Do `work`, until the client hangs up; then nobody waits for it any more, and its replica hears of that."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_hung_up(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _say(send: Send, status: int, headers: list[Header], content: bytes | None) -> None:
    """A whole reply; None is the content of one that has no body by its nature."""
    if content is not None:
        headers = [*headers, (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content or b""})
