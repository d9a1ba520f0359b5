"""Checkpoints' bytes between nodes: this node gives what its cache holds, and what programs here put on the shelf.

The exchange itself is `checkpoints/fetch/exchange.py`; here it meets streams of the agent. A file is asked for by a key
that its content gives, so a node gives nothing whose content the asker did not know of.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any, Final

from ropeway.checkpoints.cache import cache_directory
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.offer import local_offer
from ropeway.checkpoints.fetch.peer import Shelf, serve
from ropeway.checkpoints.fetch.source import Source
from ropeway.cluster.services import until_end
from ropeway.transport.iroh.services import Refused, Service
from ropeway.transport.iroh.streams import Lines, SocketStream, join

MOST: Final = 64
"""Askers at once; each has a thread."""


class Shelves:
    """What this node gives to others. For the event loop's thread but for `find`."""

    def __init__(self, cache: Path | None = None) -> None:
        self._cached = Shelf(cache or cache_directory())
        self._shelved: dict[str, Source] = {}
        self._askers = 0

    def services(self) -> dict[str, Service]:
        """What it answers."""
        return {"shelve": self._shelve, "weights": self._give}

    def find(self, key: str) -> Source | None:
        """The file of this key, as far as it is here; for the exchange, from any thread."""
        return self._shelved.get(key) or self._cached.find(key)

    async def _shelve(self, first: dict[str, Any], lines: Lines, _node: str) -> None:
        """A program here gives a checkpoint of this machine to the cluster, for as long as its stream lasts."""
        try:
            offer = await asyncio.to_thread(local_offer, Path(str(first.get("path", ""))))
        except CheckpointError as error:
            raise Refused(str(error)) from None
        mine = {sources[0].facts.key: sources[0] for sources in offer.files.values()}
        self._shelved.update(mine)
        try:
            await lines.write_line({"keys": offer.keys})
            await until_end(lines)
        finally:
            for key, source in mine.items():
                if self._shelved.get(key) is source:
                    del self._shelved[key]

    async def _give(self, _first: dict[str, Any], lines: Lines, _node: str) -> None:
        """Give a node what it asks for."""
        if self._askers >= MOST:
            raise Refused("too many nodes are asking for weights at once")
        ours, theirs = socket.socketpair()
        self._askers += 1
        try:
            await lines.write_line({"ok": True})
            threading.Thread(target=serve, args=(theirs, self), name="weights", daemon=True).start()
            await join(lines, SocketStream(ours))
        finally:
            self._askers -= 1
