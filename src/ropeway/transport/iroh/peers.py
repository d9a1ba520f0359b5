"""One proved connection to another node: the proofs, its heartbeat, its datagrams, and streams both ways.

A node that vanishes is noticed by silence, because QUIC itself takes half a minute: each side sends a heartbeat twice a
second, and closes a connection on which nothing at all has come for `SILENCE_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from ropeway.transport.iroh.endpoint import Endpoint, NodeAddress, Unreachable, node_bytes
from ropeway.transport.iroh.proof import (
    ACCEPTOR,
    DIALER,
    HELLO_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    NotProved,
    check_proof,
    judge_hello,
    make_hello,
    make_proof,
)
from ropeway.transport.iroh.streams import Lines, QuicStream, StreamEnded, read_exactly
from ropeway.transport.lines import LineError

PROOF_S: Final = 10.0
"""How long a node may take to prove itself."""
BEAT_S: Final = 0.5
SILENCE_S: Final = 4.0
"""A node that has said nothing at all for so long has gone."""
LATE_S: Final = 1.0
"""Where our own timer comes so late, it was we who stood still, and nobody is judged."""
STREAMS: Final = 1024
"""Streams that a node may open at once."""
GREETING_BYTES: Final = 4096
_BEAT: Final = b"\0"
_PACKET: Final = b"\1"
_GONE: Final = 1
_REFUSED: Final = 2


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a node says of itself once both proofs have passed: its name for people, and where it can be reached."""

    label: str
    address: NodeAddress

    def encode(self) -> dict[str, str]:
        """As one line."""
        return {"label": self.label, "address": self.address.text()}

    @classmethod
    def decode(cls, value: dict[str, Any]) -> Greeting:
        """Raises ValueError."""
        label = str(value.get("label", ""))
        if len(label.encode()) > 63 or not label.isprintable():
            raise ValueError("label: not a printable name of at most 63 bytes")
        return cls(label, NodeAddress.parse(str(value.get("address", ""))))


async def prove(endpoint: Endpoint, connection: Any, side: bytes, key: bytes, ours: Greeting) -> Greeting:
    """Exchange hello, proof and greeting over a fresh connection; what the other side says of itself.

    Raises NotProved, having told the other side why, and Unreachable.
    """
    try:
        return await asyncio.wait_for(_prove(endpoint, connection, side, key, ours), PROOF_S)
    except NotProved as error:
        connection.close(_REFUSED, str(error).encode())
        raise
    except TimeoutError:
        connection.close(_REFUSED, b"late: no proof in time")
        raise Unreachable(f"it did not prove itself within {PROOF_S:g} s") from None
    except (StreamEnded, LineError, ValueError, endpoint.error) as error:
        reason = connection.close_reason()
        connection.close(_REFUSED, b"wrong_magic: it does not speak as a node does")
        raise Unreachable(str(reason or error)) from None


async def _prove(endpoint: Endpoint, connection: Any, side: bytes, key: bytes, ours: Greeting) -> Greeting:
    raw = await (connection.open_bi() if side == DIALER else connection.accept_bi())
    stream = QuicStream(raw, endpoint.error, lambda: None)
    own, other = node_bytes(endpoint.node), node_bytes(str(connection.remote_id()))
    ids = (own, other) if side == DIALER else (other, own)
    hello = make_hello(key, os.urandom(NONCE_BYTES))
    if side == DIALER:
        await stream.write(hello)
        theirs = await read_exactly(stream, HELLO_BYTES)
        judge_hello(theirs, key)
        await stream.write(make_proof(key, DIALER, ids, (hello, theirs)))
        check_proof(key, ACCEPTOR, ids, (hello, theirs), await read_exactly(stream, PROOF_BYTES))
    else:
        theirs = await read_exactly(stream, HELLO_BYTES)
        judge_hello(theirs, key)
        await stream.write(hello)
        check_proof(key, DIALER, ids, (theirs, hello), await read_exactly(stream, PROOF_BYTES))
        await stream.write(make_proof(key, ACCEPTOR, ids, (theirs, hello)))
    lines = Lines(stream)
    await lines.write_line(ours.encode())
    said = await lines.read_line()
    if said is None or len(json.dumps(said)) > GREETING_BYTES:
        raise StreamEnded("it says nothing of itself")
    await stream.finish()
    return Greeting.decode(said)


class Peer:
    """A proved connection. `on_packet` gets datagrams, `on_stream` the streams that it opens, `on_lost` its end."""

    def __init__(
        self,
        endpoint: Endpoint,
        connection: Any,
        greeting: Greeting,
        on_packet: Callable[[str, bytes], None],
        on_stream: Callable[[Lines, str], Awaitable[None]],
        on_lost: Callable[[Peer, str], None],
    ) -> None:
        self.node = str(connection.remote_id())
        self.greeting = greeting
        self.lost = ""
        """Why it has ended; empty while it lives."""
        self.heard_at = time.monotonic()
        self._endpoint = endpoint
        self._connection = connection
        self._on_packet = on_packet
        self._on_stream = on_stream
        self._on_lost = on_lost
        connection.set_max_concurrent_bi_streams(STREAMS)
        self._streams: set[asyncio.Task[None]] = set()
        self._beating = asyncio.ensure_future(self._beat())
        self._reading = [asyncio.ensure_future(work) for work in (self._read_packets(), self._accept_streams())]
        self._watching = asyncio.ensure_future(self._watch())

    def send_packet(self, packet: bytes) -> bool:
        """Send one datagram, if it fits; False where it does not. It may be lost."""
        try:
            self._connection.send_datagram(_PACKET + packet)
        except self._endpoint.error:
            return bool(self.lost)
        return True

    async def open(self) -> Lines:
        """A new stream. Raises Unreachable."""
        try:
            raw = await self._connection.open_bi()
        except self._endpoint.error as error:
            raise Unreachable(f"node {self.node[:8]}: {error}") from None
        return Lines(QuicStream(raw, self._endpoint.error, self._heard))

    @property
    def rtt_ms(self) -> int | None:
        """The round trip as QUIC sees it."""
        rtt = self._connection.rtt()
        return None if rtt is None else int(rtt)

    def close(self, why: str = "the node leaves") -> None:
        """Close the connection and everything on it."""
        self._connection.close(_GONE, why.encode())

    async def ended(self) -> None:
        """Wait until everything that belongs to a closed connection has ended."""
        await asyncio.wait([self._watching, self._beating, *self._reading, *self._streams])

    def _heard(self) -> None:
        self.heard_at = time.monotonic()

    async def _read_packets(self) -> None:
        with contextlib.suppress(self._endpoint.error):
            while True:
                packet = bytes(await self._connection.read_datagram())
                self._heard()
                if packet[:1] == _PACKET:
                    self._on_packet(self.node, packet[1:])

    async def _accept_streams(self) -> None:
        with contextlib.suppress(self._endpoint.error):
            while True:
                raw = await self._connection.accept_bi()
                self._heard()
                lines = Lines(QuicStream(raw, self._endpoint.error, self._heard))
                task = asyncio.ensure_future(self._on_stream(lines, self.node))
                self._streams.add(task)
                task.add_done_callback(self._streams.discard)

    async def _beat(self) -> None:
        """Send heartbeats, and judge the silence of the other side."""
        before = time.monotonic()
        while not self.lost:
            with contextlib.suppress(self._endpoint.error):
                self._connection.send_datagram(_BEAT)
            await asyncio.sleep(BEAT_S)
            now = time.monotonic()
            if now - before > BEAT_S + LATE_S:
                self.heard_at = now
            before = now
            if now - self.heard_at > SILENCE_S:
                self.close(f"silence: nothing heard for {SILENCE_S:g} s")

    async def _watch(self) -> None:
        self.lost = str(await self._connection.closed()) or "closed"
        self._beating.cancel()  # it only sleeps; what reads ends by itself
        self._on_lost(self, self.lost)
