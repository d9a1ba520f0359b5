"""What a service of a node is, and the one that brings a ring's connections to the ranks here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ropeway.transport.iroh.streams import Lines, SocketStream, join

Service = Callable[[dict[str, Any], Lines, str], Awaitable[None]]
"""Answers one stream: its first line, the stream, and the id of the node that asks. Raises Refused."""


class Refused(Exception):
    """A service says no; the text goes to whoever asked."""


def ring_service(path: Callable[[str, int], Path]) -> Service:
    """The service that brings a connection of a ring to the rank that listens at `path(ring, rank)` on this machine."""

    async def bring(first: dict[str, Any], lines: Lines, node: str) -> None:
        ring, rank = first.get("ring"), first.get("rank")
        if not isinstance(ring, str) or not ring.isalnum() or len(ring) > 16 or type(rank) is not int or rank < 0:
            raise Refused("a ring's name has up to 16 letters and digits, a rank is a number")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, str(path(ring, rank)))
        except OSError:
            sock.close()
            raise Refused(f"rank {rank} of ring {ring} is not here") from None
        there = Lines(SocketStream(sock))
        await there.write_line({"from": node[:8]})
        await lines.write_line({"ok": True})
        await join(lines, there)

    return bring
