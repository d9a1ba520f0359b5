"""Hello and proof of one connection, on either side (wire.md 4). Knows not whose turn it is (conversation.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ropeway.wire.frames import Channel, Payload
from ropeway.wire.hello import KEY_BYTES, Hello, Side, check_proof, decode_hello, judge_hello, make_proof


class Handshake:
    """Both hellos, judged as they come, and the proofs over them.

    Raises ValueError for a key that has not 32 bytes and for a dialer without a channel.
    """

    __slots__ = ("_accept", "_channel", "_key", "_ours", "_payloads", "_side", "peer")

    def __init__(
        self, side: Side, channel: Channel | None, ours: Hello, key: bytes, accept: Callable[[Hello], None] | None
    ) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"key: {len(key)} bytes, expected {KEY_BYTES}")
        if channel is None and side is Side.DIALER:
            raise ValueError("channel: a dialer must name one")
        self._side = side
        self._channel = channel
        self._ours = ours if channel is None else replace(ours, channel=channel)
        self._key = key
        self._accept = accept
        self._payloads: dict[Side, bytes] = {}
        self.peer: Hello | None = None
        """Who is across, once its hello has been judged; believe it once the proof has passed."""

    @property
    def rank(self) -> int:
        """Our rank."""
        return self._ours.rank

    @property
    def channel(self) -> Channel:
        """What the connection is for, once both hellos are known."""
        return self._ours.channel

    @property
    def edge_back(self) -> bool:
        """A rows channel from the last rank to rank 0, once both hellos are known."""
        dialer = self._ours if self._side is Side.DIALER else self.peer
        return dialer is not None and dialer.channel is Channel.ROWS and dialer.rank == dialer.world - 1

    def make_hello(self) -> bytes:
        """Our hello's payload."""
        payload = self._ours.encode()
        self._payloads[self._side] = payload
        return payload

    def hear_hello(self, payload: Payload) -> None:
        """Decode and judge the peer's hello. Raises ProtocolError of `decode_hello`, `judge_hello` and `accept`."""
        peer = decode_hello(payload)
        if self._channel is None:
            self._ours = replace(self._ours, channel=peer.channel)
        judge_hello(self._ours, self._side, peer)
        if self._accept is not None:
            self._accept(peer)
        self.peer = peer
        self._payloads[self._side.other] = bytes(payload)

    def make_proof(self) -> bytes:
        """Our proof's payload."""
        return make_proof(self._key, self._side, self._payloads[Side.DIALER], self._payloads[Side.ACCEPTOR])

    def hear_proof(self, payload: Payload) -> None:
        """Check the peer's proof. Raises ProtocolError `wrong_key`."""
        payloads = self._payloads
        check_proof(self._key, self._side.other, payloads[Side.DIALER], payloads[Side.ACCEPTOR], payload)
