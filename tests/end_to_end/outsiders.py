"""Who is not a process of the project: strangers at a rank's port, and proved ranks that a test plays itself."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

from end_to_end.by_hand import HandRing
from end_to_end.processes import wait_until
from ropeway.launch import placement
from ropeway.launch.keys import read_key
from ropeway.stage.describe import RELEASE
from ropeway.transport import tcp
from ropeway.wire import (
    HEADER_BYTES,
    NONCE_BYTES,
    Channel,
    Header,
    Hello,
    Kind,
    Ready,
    ReadyHeard,
    decode_fate,
    encode_header,
)
from transport.puppet import Puppet, accept, dial
from transport.rings import Place, describe

T = TypeVar("T")

GARBAGE = b"GET / HTTP/1.1\r\nHost: ring\r\nUser-Agent: a port scan\r\n\r\n"
SILENCE_S = 15.0
"""How long a stranger may have to wait until it is dropped, which is due after 10 s."""


class HandPlace(Place):
    """A ring of processes, as a test sees it that plays rank `mine` and listens for it."""

    def __init__(self, ring: HandRing, mine: int | None = None) -> None:
        options = placement.Options(ring.model, stages=ring.world, context=32000)
        self.layout = placement.place(options).layout
        self.addresses = ring.addresses
        self.key = read_key(ring.key)
        self.bring_up_s = self.round_s = 60.0
        self.listeners = [] if mine is None else [tcp.listen(ring.addresses[mine])] * ring.world

    def hello_frame(self, channel: Channel, rank: int) -> bytes:
        """A rank's hello: public but for the layout."""
        hello = Hello(rank, self.layout.world, channel, self.layout.fingerprint(), os.urandom(NONCE_BYTES))
        payload = hello.encode()
        return encode_header(Header(Kind.HELLO, 0, 0, 0, len(payload))) + payload


def reach(address: str) -> socket.socket:
    """A stranger's connection, once somebody listens."""
    sock = patiently(lambda: tcp.connect(address, 5.0))
    sock.settimeout(SILENCE_S)
    return sock


def patiently(connect: Callable[[], T]) -> T:
    """What `connect` gives once the process at the other end listens."""
    made: list[T] = []

    def try_once() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            made.append(connect())
        return bool(made)

    wait_until(try_once)
    return made[0]


def say(address: str, data: bytes, *, hang_up: bool = False) -> str:
    """Say something; the name of the error that is heard back before the connection ends, or nothing."""
    with reach(address) as sock:
        sock.sendall(data)
        if hang_up:
            sock.shutdown(socket.SHUT_WR)
        return last_words(sock)


def last_words(sock: socket.socket) -> str:
    """The error of the last fate before the end of a connection, or nothing."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(4096):
            data += piece
    while data:
        end = HEADER_BYTES + int.from_bytes(data[24:28], "little")
        if data[6] == Kind.FATE:
            return decode_fate(data[HEADER_BYTES:end]).error.label
        data = data[end:]
    return ""


class SlowDialer:
    """Sends a good hello, one byte a second, until it is dropped."""

    def __init__(self, address: str, hello: bytes) -> None:
        self._sock = reach(address)
        self._hello = hello
        self.dropped = threading.Event()
        threading.Thread(target=self._run, name="slow dialer", daemon=True).start()

    def _run(self) -> None:
        self._sock.settimeout(1.0)
        with self._sock as sock, contextlib.suppress(ConnectionError):
            for at in range(len(self._hello)):
                sock.sendall(self._hello[at : at + 1])
                try:
                    if not sock.recv(4096):
                        break
                except TimeoutError:
                    continue
        self.dropped.set()


@contextlib.contextmanager
def played_stage(ring: HandRing) -> Iterator[Puppet]:
    """Rank 1 of 2 in the test's own hands, ready, beside the process of rank 0, whose first plan has come."""
    here = HandPlace(ring, 1)
    with ExitStack() as stack:
        stack.callback(here.close)
        control = patiently(lambda: dial(here, Channel.CONTROL, 1, 0))
        stage = Puppet(control, dial(here, Channel.ROWS, 1, 0), accept(here, 1))
        stack.callback(stage.close)
        described = replace(describe(here.layout, 1), release=RELEASE)
        control.send(*control.link.send_describe(described), *control.link.send_ready(Ready(1, 0, 0, 0)))
        control.until(Kind.PLAN)
        yield stage


@contextlib.contextmanager
def played_head(ring: HandRing) -> Iterator[Puppet]:
    """Rank 0 of 2 in the test's own hands, beside the process of rank 1, which is ready."""
    here = HandPlace(ring, 0)
    with ExitStack() as stack:
        stack.callback(here.close)
        here.listeners[0].settimeout(60)
        control = accept(here, 0)
        back = accept(here, 0)
        head = Puppet(control, dial(here, Channel.ROWS, 0, 1), back)
        stack.callback(head.close)
        control.sock.settimeout(60)
        while not isinstance(control.hear(), ReadyHeard):
            pass
        yield head
