"""Memory for a frame: the header right before an aligned payload."""

from __future__ import annotations

import numpy as np

from ropeway.transport.buffer import HEADER_AT, PAYLOAD_AT, Buffer


def test_a_frame_is_header_and_payload_in_one_piece() -> None:
    buffer = Buffer(8)
    buffer.memory[HEADER_AT:PAYLOAD_AT] = b"h" * 32
    buffer.payload[:] = b"payload!"
    assert bytes(buffer.frame) == b"h" * 32 + b"payload!"


def test_it_grows_and_fits() -> None:
    buffer = Buffer(0)
    assert len(buffer.payload) == 0
    for size in (10, 100_000, 5, 100_000):
        buffer.fit(size)
        assert len(buffer.payload) == size
        assert len(buffer.frame) == size + 32
    small = buffer.payload
    buffer.fit(100_000)
    assert buffer.payload is small


def test_a_payload_is_aligned_to_a_cache_line() -> None:
    assert np.frombuffer(Buffer(1 << 16).payload, np.float32).ctypes.data % 64 == 0


def test_borrowed_memory_outlives_growth() -> None:
    buffer = Buffer(4)
    before = buffer.payload
    before[:] = b"keep"
    buffer.fit(1 << 20)
    assert bytes(before) == b"keep"
