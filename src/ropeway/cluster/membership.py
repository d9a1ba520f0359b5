"""Drives the core of membership (`swim/`) over the datagrams of proved connections, in the agent's event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

from ropeway.cluster.swim import Contact, Event, PacketError, Seal, Statement, Swim, Timing
from ropeway.transport.iroh.endpoint import NodeAddress
from ropeway.transport.iroh.proof import cluster_id
from ropeway.transport.iroh.switchboard import Switchboard

log = logging.getLogger("ropeway.cluster")

SWIM_CLUSTER_BYTES: Final = 8
MOVE_S: Final = 5.0
"""How often our own address is looked at."""
FAREWELLS: Final = 3
"""Gossip intervals that a node which leaves goes on for."""


class Membership:
    """One node's membership. `on_event` gets what changes; everything here is for the event loop's thread."""

    def __init__(
        self,
        board: Switchboard,
        key: bytes,
        label: str,
        timing: Timing,
        seal: Seal,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self._board = board
        self._timing = timing
        self._on_event = on_event
        self._wake = asyncio.Event()
        self._moved_at = time.monotonic()
        address = board.endpoint.address().text().encode()
        me = Statement(bytes.fromhex(board.node), int(time.time() * 1000), label=label, address=address)
        cluster = cluster_id(key)[:SWIM_CLUSTER_BYTES]
        self.swim = Swim(me, cluster, timing, Random(), time.monotonic(), seal)

    def join(self, contacts: list[Contact]) -> None:
        """Come in by these nodes, tried again until one answers."""
        self.swim.join(time.monotonic(), contacts)
        self._settle()

    def received(self, node: str, packet: bytes) -> None:
        """A datagram of a proved node."""
        try:
            self.swim.received(time.monotonic(), bytes.fromhex(node), packet)
        except PacketError as error:
            log.warning("node %s breaks the rules of membership: %s", node[:8], error)
            peer = self._board.connected(node)
            if peer is not None:
                peer.close(str(error))
        self._settle()

    def register(self, name: str, value: bytes = b"") -> None:
        """Let a name lead here. Raises ValueError."""
        self.swim.register(time.monotonic(), name, value)
        self._settle()

    def unregister(self, name: str) -> None:
        """Take a name back."""
        self.swim.unregister(time.monotonic(), name)
        self._settle()

    def address(self, node: str) -> NodeAddress | None:
        """Where a member says that it is."""
        try:
            member = self.swim.member(bytes.fromhex(node))
            return None if member is None else NodeAddress.parse(member.address.decode())
        except ValueError:
            return None

    async def run(self) -> None:
        """Keep the time, for as long as the agent lives."""
        while True:
            self._wake.clear()
            left = self.swim.next_at() - time.monotonic()
            try:
                await asyncio.wait_for(self._wake.wait(), min(max(left, 0.0), MOVE_S))
            except TimeoutError:
                self._tick()

    async def leave(self) -> None:
        """Say that we leave, for long enough to be heard."""
        self.swim.leave(time.monotonic())
        self._settle()
        for _ in range(FAREWELLS):
            await asyncio.sleep(self._timing.gossip_interval_s)
            self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._moved_at >= MOVE_S:
            self._moved_at = now
            self.swim.move(now, self._board.endpoint.address().text().encode())
        self.swim.tick(now)
        self._settle()

    def _settle(self) -> None:
        for send in self.swim.outgoing():
            self._board.send_packet(send.to.hex(), send.packet)
        for event in self.swim.events():
            self._on_event(event)
        self._wake.set()


class KeySeal:
    """Ed25519 signatures by the node's own key, whose public half is its id."""

    def __init__(self, iroh: Any, secret: bytes) -> None:
        self._iroh = iroh
        self._secret = iroh.SecretKey.from_bytes(secret)

    def sign(self, said: bytes) -> bytes:
        """64 bytes."""
        return bytes(self._secret.sign(said).to_bytes())

    def holds(self, member: bytes, said: bytes, seal: bytes) -> bool:
        """Whether `member`'s key has signed this."""
        iroh = self._iroh
        try:
            iroh.EndpointId.from_bytes(member).verify(said, iroh.Signature.from_bytes(seal))
        except iroh.IrohError:
            return False
        return True
