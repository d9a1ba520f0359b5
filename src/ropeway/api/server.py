"""Serving the app with uvicorn on one listening socket."""

from __future__ import annotations

import ipaddress
import math
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

DRAIN_S = 10.0
"""How long replies under way may go on once the server is told to stop."""
LAST_WORDS_S = 5
"""How long a client may take, after that, to read its last event before it is cut off."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name counts only if it is localhost."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_listener(host: str, port: int, *, protected: bool) -> socket.socket:
    """A bound socket; port 0 takes any. `protected`: there is an API key, or the operator said that none is wanted.

    Raises ValueError when a host other than loopback would stand open, OSError when it cannot be bound.
    """
    if not protected and not is_loopback(host):
        raise ValueError(f"host: {host} can be reached by others; give --api-key FILE, or --no-auth if that is meant")
    family, kind, protocol, _, address = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    return listener


def run_server(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_ready: Callable[[int], None] | None = None,
    on_stop: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    drain_s: float = DRAIN_S,
) -> None:
    """Serve until SIGINT or SIGTERM, or, in another thread than the main one, until `stop` is set.

    `on_ready` gets the port once requests are answered. `on_stop` is called when the server has been told to stop; it
    must not block, and has the service end every reply within `drain_s`. The caller keeps the listener.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=math.ceil(drain_s) + LAST_WORDS_S,
    )
    server = _Server(config, listener.getsockname()[1], on_ready, on_stop, stop)
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        port: int,
        on_ready: Callable[[int], None] | None,
        on_stop: Callable[[], None] | None,
        stop: threading.Event | None,
    ) -> None:
        super().__init__(config)
        self._port = port
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._stop = stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None and self.started:
            self._on_ready(self._port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._on_stop is not None:
            self._on_stop()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or (self._stop is not None and self._stop.is_set())
