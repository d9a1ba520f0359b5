"""Server-sent events, and requests whose client hangs up.

A stream's status is sent with its first event, so that whatever fails before that is an ordinary error reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import Any, Final, TypeVar

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ropeway.api.errors import ApiError, internal_error

T = TypeVar("T")

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": ping\n\n"

log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client hung up; nobody will read a reply."""


def event(value: Mapping[str, Any]) -> bytes:
    """One event."""
    return b"data: " + to_json(value) + b"\n\n"


async def until_hangup(request: Request, work: Awaitable[T]) -> T:
    """What `work` gives; it is cancelled, and ClientGone raised, when the client hangs up first."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hangup(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        await _end(task, gone)


class EventStream(Response):
    """A reply that is a stream of events: `first`, which is there already, then the rest."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None], ping_s: float) -> None:
        super().__init__(media_type="text/event-stream; charset=utf-8")
        self._first = first
        self._rest = rest
        self._ping_s = ping_s
        self._sent_at = time.monotonic()
        self.headers["Cache-Control"] = "no-store"
        self.headers["X-Accel-Buffering"] = "no"
        del self.headers["Content-Length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pump = asyncio.ensure_future(self._pump(send))
        gone = asyncio.ensure_future(_hangup(receive))
        pings = asyncio.ensure_future(self._pings(send))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
        finally:
            await _end(pump, gone, pings)

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with contextlib.aclosing(self._rest) as rest:
            try:
                await self._send(send, self._first)
                async for data in rest:
                    await self._send(send, data)
            except ApiError as error:
                await self._send(send, event(error.body()))
            except Exception:
                log.exception("a stream failed")
                await self._send(send, event(internal_error().body()))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pings(self, send: Send) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._sent_at + self._ping_s - time.monotonic()))
            if time.monotonic() >= self._sent_at + self._ping_s:
                await self._send(send, PING)

    async def _send(self, send: Send, data: bytes) -> None:
        self._sent_at = time.monotonic()
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _hangup(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what is not done, and wait until it is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
