"""Streams between the programs of all nodes: what one asks its agent for is found here, or carried to another node.

A stream begins with one line, `{"to": SERVICE, ...}`, and one line answers it: an object, with `error` where it is
refused. A program on this machine also says `node`; where that is another one, the stream is carried there as it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from ropeway.transport.iroh.endpoint import DIAL_S, Endpoint, NodeAddress, Unreachable, describe
from ropeway.transport.iroh.peers import PROOF_S, Greeting, Peer, prove
from ropeway.transport.iroh.proof import ACCEPTOR, DIALER, NotProved
from ropeway.transport.iroh.services import Refused, Service
from ropeway.transport.iroh.streams import Lines, SocketStream, StreamEnded, join
from ropeway.transport.lines import LineError
from ropeway.transport.switched import listen

log = logging.getLogger("ropeway.iroh")

FIRST_LINE_S: Final = 10.0
MOST_UNPROVED: Final = 64
"""Connections that may be proving themselves at once; more are turned away."""


class Switchboard:
    """A node's connections. `resolve` turns what a program calls a node into its id, `address` says where that is.

    `on_packet` gets every datagram of a proved node, `on_peer` every new connection, `on_lost` every end of one.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        key: bytes,
        label: str,
        services: dict[str, Service],
        *,
        local: frozenset[str] = frozenset(),
        resolve: Callable[[str], str] = lambda node: node,
        address: Callable[[str], NodeAddress | None] = lambda _: None,
        on_packet: Callable[[str, bytes], None] = lambda _node, _packet: None,
        on_peer: Callable[[Peer], None] = lambda _: None,
        on_lost: Callable[[Peer, str], None] = lambda _peer, _why: None,
    ) -> None:
        self.endpoint = endpoint
        self._key = key
        self._label = label
        self.services = services
        self._local = local
        self._resolve = resolve
        self._address = address
        self._on_packet = on_packet
        self._on_peer = on_peer
        self._on_lost = on_lost
        self._peers: dict[str, list[Peer]] = {}
        self._dialing: dict[str, asyncio.Task[Peer]] = {}
        self._unproved = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self.refused: dict[str, int] = {}
        """How often nodes were refused, by the reason's name."""

    @property
    def node(self) -> str:
        """Our id."""
        return self.endpoint.node

    def start(self, switch: Path | None = None) -> None:
        """Take connections from now on, and programs on this machine at the Unix socket `switch`. Raises OSError."""
        self._keep(self._accept())
        if switch is not None:
            self._listener = listen(switch)
            self._listener.setblocking(False)
            self._keep(self._accept_programs(self._listener))

    async def close(self) -> None:
        """Close everything."""
        if self._listener is not None:
            self._listener.close()
        peers = self.peers()
        for peer in peers:
            peer.close()
        for peer in peers:
            await peer.ended()
        await self.endpoint.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Peers

    def peers(self) -> list[Peer]:
        """Every live connection."""
        return [peer for peers in self._peers.values() for peer in peers]

    def connected(self, node: str) -> Peer | None:
        """A live connection to a node, if there is one."""
        peers = self._peers.get(node)
        return peers[0] if peers else None

    async def peer(self, node: str, limit_s: float = DIAL_S, address: NodeAddress | None = None) -> Peer:
        """A proved connection to a node, dialled where there is none. Raises Unreachable, NotProved."""
        there = self.connected(node)
        if there is not None:
            return there
        task = self._dialing.get(node)
        if task is None:
            task = asyncio.ensure_future(self._dial(node, limit_s, address or self._address(node)))
            self._dialing[node] = task
            task.add_done_callback(lambda done: self._dialled(node, done))
        try:
            return await asyncio.wait_for(asyncio.shield(task), limit_s)
        except TimeoutError:
            raise Unreachable(f"node {node[:8]} did not answer within {limit_s:g} s") from None

    def send_packet(self, node: str, packet: bytes) -> None:
        """Send a datagram to a node; where there is no connection yet one is made, and the packet is lost or late."""
        there = self.connected(node)
        if there is not None:
            if not there.send_packet(packet):
                self._keep(self._send_large(there, packet))
        elif node not in self._dialing:
            self._keep(self._dial_and_send(node, packet))

    async def open(self, node: str, first: dict[str, Any], limit_s: float = DIAL_S) -> Lines:
        """A stream to a service of another node; its answer is still to be read. Raises Unreachable, NotProved."""
        peer = await self.peer(node, limit_s)
        lines = await peer.open()
        try:
            await lines.write_line(first)
        except StreamEnded as error:
            raise Unreachable(f"node {node[:8]}: {error}") from None
        return lines

    async def ask(self, node: str, first: dict[str, Any], limit_s: float = DIAL_S) -> dict[str, Any]:
        """One line of a service of another node. Raises Unreachable, NotProved, Refused."""
        lines = await self.open(node, first, limit_s)
        try:
            reply = await asyncio.wait_for(lines.read_line(), limit_s)
            await lines.finish()
        except (TimeoutError, StreamEnded, LineError) as error:
            lines.abandon()
            raise Unreachable(f"node {node[:8]}: {error or 'no answer in time'}") from None
        if reply is None or "error" in reply:
            raise Refused(str((reply or {}).get("error", "no answer")))
        return reply

    async def _dial(self, node: str, limit_s: float, address: NodeAddress | None) -> Peer:
        connection = await self.endpoint.dial(node, address, limit_s)
        greeting = await prove(self.endpoint, connection, DIALER, self._key, self._greeting())
        return self._welcome(connection, greeting)

    def _dialled(self, node: str, task: asyncio.Task[Peer]) -> None:
        self._dialing.pop(node, None)
        if not task.cancelled():
            task.exception()  # whoever waited has been told

    async def _dial_and_send(self, node: str, packet: bytes) -> None:
        try:
            peer = await self.peer(node)
        except (Unreachable, NotProved) as error:
            log.debug("node %s: %s", node[:8], error)
            return
        peer.send_packet(packet)

    async def _send_large(self, peer: Peer, packet: bytes) -> None:
        """A packet that is too large for a datagram on this path goes by a stream."""
        try:
            lines = await peer.open()
            await lines.write_line({"to": "packet", "hex": packet.hex()})
            await lines.finish()
        except (Unreachable, StreamEnded) as error:
            log.debug("node %s: %s", peer.node[:8], error)

    async def _accept(self) -> None:
        while (incoming := await self.endpoint.incoming()) is not None:
            if self._unproved >= MOST_UNPROVED:
                self._count("crowded")
                self._keep(self.endpoint.refuse(incoming))
            else:
                self._unproved += 1
                self._keep(self._let_in(incoming))

    async def _let_in(self, incoming: Any) -> None:
        try:
            connection = await self.endpoint.accept(incoming, PROOF_S)
            who = f"node {str(connection.remote_id())[:8]} at {describe(connection)}"
        except Unreachable:
            self._count("handshake")
            return
        finally:
            self._unproved -= 1
        self._unproved += 1
        try:
            greeting = await prove(self.endpoint, connection, ACCEPTOR, self._key, self._greeting())
        except NotProved as error:
            self._count(error.name)
            log.warning("refused %s: %s", who, error)
        except Unreachable as error:
            self._count("unproved")
            log.warning("dropped %s: %s", who, error)
        else:
            self._welcome(connection, greeting)
        finally:
            self._unproved -= 1

    def _welcome(self, connection: Any, greeting: Greeting) -> Peer:
        peer = Peer(self.endpoint, connection, greeting, self._on_packet, self._serve, self._gone)
        self._peers.setdefault(peer.node, []).append(peer)
        self._on_peer(peer)
        return peer

    def _gone(self, peer: Peer, why: str) -> None:
        peers = self._peers.get(peer.node, [])
        if peer in peers:
            peers.remove(peer)
        if not peers:
            self._peers.pop(peer.node, None)
        self._on_lost(peer, why)

    def _greeting(self) -> Greeting:
        return Greeting(self._label, self.endpoint.address())

    def _count(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    # Streams

    async def _accept_programs(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(listener)
            self._keep(self._serve(Lines(SocketStream(sock)), self.node, here=True))

    async def _serve(self, lines: Lines, node: str, *, here: bool = False) -> None:
        """Answer one stream of `node`; from a program on this machine it may be for another one."""
        try:
            first = await asyncio.wait_for(lines.read_line(), FIRST_LINE_S)
            if first is None:
                return
            if here and await self._carry(lines, first):
                return
            to = str(first.get("to", ""))
            service = self.services.get(to)
            if service is None or (to in self._local and not here):
                raise Refused(f"there is no service {to!r} here" if service is None else f"{to!r} is for this machine")
            await service(first, lines, node)
            await lines.finish()
        except Refused as error:
            await self._say_no(lines, str(error))
        except (Unreachable, NotProved) as error:
            await self._say_no(lines, str(error))
        except (StreamEnded, LineError, TimeoutError) as error:
            log.debug("a stream of node %s: %s", node[:8], error)
            lines.abandon()
        except Exception:
            log.exception("a stream of node %s", node[:8])
            lines.abandon()
        finally:
            if here:
                lines.abandon()

    async def _carry(self, lines: Lines, first: dict[str, Any]) -> bool:
        """Carry a program's stream to the node that it is for; False where that is this one."""
        called = str(first.pop("node", ""))
        limit = first.pop("timeout_s", DIAL_S)
        node = self._resolve(called) if called else self.node
        if node == self.node:
            return False
        limit_s = min(float(limit), DIAL_S) if isinstance(limit, int | float) else DIAL_S
        await join(lines, await self.open(node, first, limit_s))
        return True

    async def _say_no(self, lines: Lines, text: str) -> None:
        try:
            await lines.write_line({"error": text})
            await lines.finish()
        except StreamEnded:
            lines.abandon()

    def _keep(self, work: Awaitable[None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(_run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run(work: Awaitable[None]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("a task of pid %d", os.getpid())
