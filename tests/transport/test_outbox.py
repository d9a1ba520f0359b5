"""Frames leave whole and in order, whatever the socket takes at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ropeway.transport.outbox import Outbox


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        one.setblocking(False)
        other.settimeout(5)
        yield one, other


def drain(outbox: Outbox, sock: socket.socket, size: int) -> bytes:
    """Flush and read in turn."""
    got = b""
    while len(got) < size:
        outbox.flush()
        got += sock.recv(1 << 16)
    return got


def test_a_small_frame_leaves_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    outbox = Outbox(pair[0])
    assert outbox.push(b"headpayload")
    assert not outbox.pending
    assert pair[1].recv(64) == b"headpayload"
    assert outbox.sent_bytes == 11


def test_large_frames_wait_and_keep_their_order(pair: tuple[socket.socket, socket.socket]) -> None:
    outbox, sent = Outbox(pair[0]), []
    one, two = bytes([1]) * 300_000, bytes([2]) * 50_000
    outbox.queue(memoryview(one), sent=lambda: sent.append(1))
    outbox.queue(memoryview(two), sent=lambda: sent.append(2))
    assert not outbox.push(b"last")
    assert not outbox.flush()
    assert sent == []
    assert drain(outbox, pair[1], 350_004) == one + two + b"last"
    assert sent == [1, 2]
    assert outbox.sent_bytes == 350_004


def test_the_rest_of_a_frame_is_queued(pair: tuple[socket.socket, socket.socket]) -> None:
    outbox, frame = Outbox(pair[0]), bytes(range(256)) * 2000
    assert not outbox.push(frame)
    assert 0 < outbox.sent_bytes < len(frame)
    assert drain(outbox, pair[1], len(frame)) == frame


def test_at_a_failure_only_a_frame_that_has_begun_is_finished(pair: tuple[socket.socket, socket.socket]) -> None:
    outbox, frame = Outbox(pair[0]), bytes(200_000)
    outbox.push(frame)
    outbox.push(b"never sent")
    outbox.abandon()
    outbox.push(b"fate")
    assert drain(outbox, pair[1], len(frame) + 4) == frame + b"fate"
    outbox.queue(memoryview(b"not begun"))
    outbox.abandon()
    assert not outbox.pending


def test_a_broken_connection_raises(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    with pytest.raises(OSError, match="Broken pipe"):
        Outbox(pair[0]).push(b"x")
