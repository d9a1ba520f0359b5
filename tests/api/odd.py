"""Servers that answer oddly, on loopback, and hear what they were asked; and a balancer before any servers."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator

from api.fake_service import WAIT_S
from ropeway.api import Settings, open_listener, run_server
from ropeway.api.balancer import Balancer
from ropeway.serving.backends import Backend, Backends

CONTEXT = 2048
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Odd:
    """Answers every connection in the same way, whatever it is asked, and closes it unless it is to `hold` it.

    `heard` are whole requests, `asked` is set with the first of them. `flood`: events follow without end; `sent` counts
    their bytes, and `blocked` is set once nobody has taken any for a while.
    """

    def __init__(self, answer: bytes, *, hold: bool = False, flood: bool = False) -> None:
        self.answer = answer
        self.heard: list[bytes] = []
        self.asked = threading.Event()
        self.hung_up = threading.Event()
        self.blocked = threading.Event()
        self.sent = 0
        self._hold = hold
        self._flood = flood
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.port: int = self._server.getsockname()[1]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                thread = threading.Thread(target=self._serve, args=(sock,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.settimeout(WAIT_S)
            self.heard.append(read_request(sock))
            self.asked.set()
            sock.sendall(self.answer)
            if self._flood:
                self._pour(sock)
            if self._hold:
                while sock.recv(1 << 16):
                    pass
        if self._hold:
            self.hung_up.set()

    def _pour(self, sock: socket.socket) -> None:
        event = b"data: " + b"x" * 1018
        chunk = (b"%x\r\n" % (len(event) + 2) + event + b"\n\n\r\n") * 64
        sock.settimeout(1.0)
        try:
            while True:
                self.sent += sock.send(chunk)
        except TimeoutError:
            self.blocked.set()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(2 * WAIT_S)
            assert not thread.is_alive()


def read_request(sock: socket.socket) -> bytes:
    """One whole request."""
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
        piece = sock.recv(1 << 16)
        if not piece:
            break
        data += piece
    return data


def _length(data: bytes) -> int:
    found = re.search(rb"\r\ncontent-length: (\d+)\r\n", data, re.IGNORECASE)
    return int(found[1]) if found else 0


@contextlib.contextmanager
def odd(answer: bytes, *, hold: bool = False, flood: bool = False) -> Iterator[Odd]:
    """An odd server."""
    server = Odd(answer, hold=hold, flood=flood)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def balanced(*ports: int, settings: Settings | None = None, key: str = "") -> Iterator[tuple[int, Backends]]:
    """The port of a balancer before servers at these ports, which ask for `key`."""
    backends = Backends()
    for number, port in enumerate(ports):
        backends.put(Backend(f"replica {number}", "127.0.0.1", port, key=key))
    listener = open_listener("127.0.0.1", 0, protected=False)
    ready, stop = threading.Event(), threading.Event()
    app = Balancer(backends, settings or Settings(), CONTEXT)
    serving = {"on_ready": lambda _: ready.set(), "stop": stop, "drain_s": 0.0}
    thread = threading.Thread(target=run_server, args=(app, listener), kwargs=serving)
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        yield listener.getsockname()[1], backends
    finally:
        stop.set()
        thread.join(2 * WAIT_S)
        listener.close()
        assert not thread.is_alive()
