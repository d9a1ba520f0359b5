"""What a rank must know to join a ring."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ropeway.transport import tcp
from ropeway.types import Layout
from ropeway.wire import KEY_BYTES, NONCE_BYTES, Channel, Hello

BRING_UP_S: Final = 60.0
ROUND_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class RingConfig:
    """One rank's part in a ring. Raises ValueError, naming the field.

    `addresses` has one HOST:PORT a rank: where that rank is dialled. `key` is the 32 shared bytes. `listener` is a
    listening socket that a parent has handed over (the ring leaves it open); without one the ring listens at `listen`,
    or at its own entry of `addresses` when that is empty. `max_rows` bounds what a plan may ask for, and `chunk` are
    the rows a part for which buffers are made at first.
    """

    rank: int
    layout: Layout
    key: bytes = field(repr=False)
    addresses: tuple[str, ...]
    max_rows: int
    chunk: int = 0
    draft_width: int = 0
    listen: str = ""
    listener: socket.socket | None = None
    bring_up_s: float = BRING_UP_S
    """How long every rank may take to answer and to join."""
    round_s: float = ROUND_S
    """Longest wait for anything inside a round."""
    connect: Callable[[str, float], socket.socket] = tcp.connect
    """One attempt to reach an address within seconds; gives any stream socket, raises OSError."""

    accepted: Callable[[socket.socket], str] = tcp.accepted
    """Prepare a socket that the listener gave, and name its other end."""

    def __post_init__(self) -> None:
        world = self.layout.world
        if not 0 <= self.rank < world:
            raise ValueError(f"rank: {self.rank} is outside 0..{world - 1}")
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"key: {len(self.key)} bytes, expected {KEY_BYTES}")
        if self.max_rows < 1:
            raise ValueError(f"max_rows: {self.max_rows}, expected at least 1")
        if world > 1 and len(self.addresses) != world:
            raise ValueError(f"addresses: {len(self.addresses)} for {world} ranks")
        for address in self.addresses:
            tcp.parse_address(address)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row on the wire."""
        return self.layout.boundary.row_bytes(self.draft_width)

    def hello(self, channel: Channel) -> Hello:
        """Our hello, with a nonce of its own."""
        nonce = os.urandom(NONCE_BYTES)
        return Hello(self.rank, self.layout.world, channel, self.layout.fingerprint(), nonce)
