"""Memory for one frame of rows: the header's 32 bytes right before the payload, to send and receive in one piece."""

from __future__ import annotations

import mmap
from typing import Final

from ropeway.wire import HEADER_BYTES

PAYLOAD_AT: Final = 64
"""The payload begins here, at a multiple of a cache line, in memory that begins at a page."""
HEADER_AT: Final = PAYLOAD_AT - HEADER_BYTES


class Buffer:
    """`frame` is header and payload, `payload` the latter alone; both have the size that `fit` was last given.

    The header is `memory[HEADER_AT:PAYLOAD_AT]`.
    """

    __slots__ = ("frame", "memory", "payload")

    def __init__(self, payload_bytes: int) -> None:
        self.memory = _map(payload_bytes)
        self.frame = memoryview(self.memory)[HEADER_AT:]
        self.payload = self.frame[HEADER_BYTES:]
        self.fit(payload_bytes)

    def fit(self, payload_bytes: int) -> None:
        """Take this size for the next frame. Memory grows and never shrinks; what was in it may be lost."""
        if len(self.payload) == payload_bytes:
            return
        if len(self.memory) < PAYLOAD_AT + payload_bytes:
            self.memory = _map(payload_bytes)
        self.frame = memoryview(self.memory)[HEADER_AT : PAYLOAD_AT + payload_bytes]
        self.payload = self.frame[HEADER_BYTES:]


def _map(payload_bytes: int) -> mmap.mmap:
    return mmap.mmap(-1, PAYLOAD_AT + payload_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
