"""Listening: what may be bound, and that a server stops while a stream is open."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from api.fake_service import WAIT_S, FakeService
from api.live import serving
from ropeway.api import open_listener
from ropeway.api.server import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.com", "127.0.0.1.example.com"])
def test_others_need_a_key(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match=r"host: .*--api-key"):
        open_listener(host, 0, protected=False)


def test_a_key_opens_the_rest() -> None:
    with contextlib.closing(open_listener("0.0.0.0", 0, protected=True)) as listener:
        assert listener.getsockname()[1] > 0


def test_a_taken_port_is_an_error() -> None:
    with contextlib.closing(open_listener("127.0.0.1", 0, protected=False)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            open_listener("127.0.0.1", port, protected=False)


def test_a_running_stream_is_ended_with_its_server() -> None:
    before = set(threading.enumerate())
    service = FakeService()
    service.hold_after = 2
    with (
        serving(service) as live,
        contextlib.closing(socket.create_connection(("127.0.0.1", live.port), WAIT_S)) as sock,
    ):
        body = b'{"model": "fake/tiny", "prompt": "x", "stream": true}'
        lines = ["POST /v1/completions HTTP/1.1", "Host: x", "Content-Type: application/json"]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
        sock.sendall(head.encode() + body)
        service.wait_for(lambda: service.running == 1)
        assert sock.recv(15) == b"HTTP/1.1 200 OK"
    # The context has released the stream and stopped the server; nothing of it is left.
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "fake-loop"]
    assert service.running == 0
