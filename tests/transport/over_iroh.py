"""A pytest plugin (`-p transport.over_iroh`) that gives the ring's own tests a ring over iroh instead of TCP.

Each rank has a node of its own; all nodes run in one thread. Only inside a network namespace that has nothing but lo.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ropeway.transport import RingConfig
from ropeway.transport.iroh.endpoint import Endpoint, NodeAddress
from ropeway.transport.iroh.services import ring_service
from ropeway.transport.iroh.switchboard import Switchboard
from ropeway.transport.switched import Switched, listen
from ropeway.types import Layout
from transport import rings

T = TypeVar("T")
RING = "test"


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="iroh", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], limit_s: float = 30.0) -> T:
        """Run to the end, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit_s)

    def close(self) -> None:
        """Stop the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Node:
    """A node with nothing but the service for rings; `sockets` is its directory."""

    def __init__(self, loop: Loop, sockets: Path, key: bytes, book: dict[str, NodeAddress]) -> None:
        self.sockets = sockets
        sockets.mkdir()
        self._loop = loop
        self.board = loop.run(self._start(key, book))
        self.node = self.board.node

    async def _start(self, key: bytes, book: dict[str, NodeAddress]) -> Switchboard:
        endpoint = await Endpoint.bind(os.urandom(32), ("127.0.0.1:0", "[::1]:0"))
        book[endpoint.node] = endpoint.address()
        services = {"ring": ring_service(lambda ring, rank: self.sockets / f"{ring}.{rank}")}
        board = Switchboard(endpoint, key, "test", services, address=book.get)
        board.start(self.sockets / "switch")
        return board

    def close(self) -> None:
        """Close its endpoint."""
        self._loop.run(self.board.close())


class IrohPlace(rings.Place):
    """As `rings.Place`, over iroh: addresses are NODE:RANK."""

    def __init__(self, shape: Layout, host: str = "127.0.0.1", bring_up_s: float = 20.0, round_s: float = 20.0) -> None:
        if host != "127.0.0.1":
            pytest.skip("hosts are TCP's own")
        self.layout = shape
        self.key = os.urandom(32)
        self.bring_up_s = bring_up_s
        self.round_s = round_s
        self._directory = Path(tempfile.mkdtemp(prefix="rw"))
        self._loop = Loop()
        book: dict[str, NodeAddress] = {}
        cluster_key = os.urandom(32)
        self.nodes = [Node(self._loop, self._directory / str(rank), cluster_key, book) for rank in range(shape.world)]
        self.listeners = [listen(node.sockets / f"{RING}.{rank}") for rank, node in enumerate(self.nodes)]
        self.addresses = tuple(f"{node.node}:{rank}" for rank, node in enumerate(self.nodes))

    def config(self, rank: int, **changes: Any) -> RingConfig:
        """A rank's configuration."""
        sockets = Switched(self.nodes[rank].sockets / "switch", RING)
        return super().config(rank, **{"connect": sockets.connect, "accepted": sockets.accepted, **changes})

    def close(self) -> None:
        """End the nodes."""
        super().close()
        for node in self.nodes:
            node.close()
        self._loop.close()
        shutil.rmtree(self._directory)


def pytest_configure() -> None:
    """Every place that a test makes is one over iroh."""
    rings.Place = IrohPlace  # type: ignore[misc]
