"""What every request passes first: the Host, the key, the body's size and time. Pure ASGI, no route is known here.

A body is read whole before the routes see the request, so its size and its time are bounded in one place.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ropeway.api.errors import ApiError
from ropeway.api.front import Front
from ropeway.api.settings import Settings, digest

KEYED: Final = ("/v1/", "/tokenize", "/detokenize", "/metrics")
"""Paths that need the key where there is one; the page, its probes and the document of the API do not."""


class Guard:
    """Refuses what should not reach the routes; numbers, names and counts what does."""

    def __init__(self, app: ASGIApp, front: Front) -> None:
        self._app = app
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a websocket: closing before accepting refuses it
            await send({"type": "websocket.close", "code": 1008})
            return
        started = time.monotonic()
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=list(message["headers"]))
                headers["X-Request-Id"] = f"req_{secrets.token_hex(12)}"
                headers["X-Ropeway-Placement"] = placement = self._front.service.fingerprint
                settings = self._front.settings
                if settings.certificate and placement == settings.certified:
                    headers["X-Ropeway-Certificate"] = settings.certificate
                headers.setdefault("X-Content-Type-Options", "nosniff")
                message = {**message, "headers": headers.raw}
            await send(message)

        self._front.metrics.in_flight.inc()
        try:
            body = await judge(scope, receive, self._front.settings, self._front.service.context)
        except ApiError as error:
            await error.response()(scope, receive, answer)
        else:
            await self._app(scope, _replay(body, receive), answer)
        finally:
            route = _route(scope)
            self._front.metrics.in_flight.dec()
            self._front.metrics.requests.labels(route, str(status)).inc()
            self._front.metrics.request_s.labels(route).observe(time.monotonic() - started)


async def judge(scope: Scope, receive: Receive, settings: Settings, context: int) -> bytes:
    """A request's body, once all is well with the request. Raises ApiError."""
    headers = Headers(scope=scope)
    _check_host(headers.get("host", ""), settings.hosts)
    if settings.api_keys and scope["path"].startswith(KEYED):
        _check_key(headers.get("authorization", ""), settings.api_keys)
    if scope["method"] != "POST":
        return b""
    return await _body(headers, receive, settings.body_limit(context), settings.body_timeout_s)


def _check_host(host: str, allowed: frozenset[str] | None) -> None:
    name = host.lower() if host.endswith("]") else host.lower().rsplit(":", 1)[0]
    if allowed is not None and name not in allowed:
        raise ApiError(421, "invalid_request_error", "This server does not answer to that host name.", None, "host")


def _check_key(header: str, keys: Iterable[bytes]) -> None:
    scheme, _, key = header.partition(" ")
    given = digest(key.strip()) if scheme.lower() == "bearer" else b""
    # Every key is compared, so that the time tells neither whether one fits nor which.
    if not sum(hmac.compare_digest(given, known) for known in keys):
        message = "No API key was given." if not header else "The API key is not known here."
        code = "missing_api_key" if not header else "invalid_api_key"
        raise ApiError(401, "authentication_error", message, None, code, {"WWW-Authenticate": "Bearer"})


async def _body(headers: Headers, receive: Receive, limit: int, timeout_s: float) -> bytes:
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > limit:
        raise _too_large(limit)
    data = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return b""  # the route finds the client gone
                data += message.get("body", b"")
                if len(data) > limit:
                    raise _too_large(limit)
                if not message.get("more_body"):
                    return bytes(data)
    except TimeoutError:
        text = f"The body did not come within {timeout_s:g} s."
        raise ApiError(408, "invalid_request_error", text, None, "timeout", {"Connection": "close"}) from None


def _too_large(limit: int) -> ApiError:
    text = f"The body is larger than {limit} bytes."
    return ApiError(413, "invalid_request_error", text, None, "body_too_large", {"Connection": "close"})


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then whatever the server says: that the client has gone."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _route(scope: Scope) -> str:
    """The route's name: few, where the paths asked for may be any."""
    endpoint = scope.get("endpoint")
    return str(getattr(getattr(endpoint, "func", endpoint), "__name__", "none"))
