"""Ranks that a test plays by hand: real handshakes, then whatever bytes the test likes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ropeway.transport import Ring, RingConfig, join
from ropeway.wire import (
    HEADER_BYTES,
    Channel,
    Event,
    Fate,
    FateHeard,
    Header,
    Hello,
    HelloDone,
    Kind,
    Link,
    Ready,
    ReadyHeard,
    Side,
    decode_fate,
    decode_header,
    encode_header,
)
from transport.rings import Place, describe, layout, place

TIMEOUT_S = 10.0


class Wire:
    """One end of a connection, blocking, with its link."""

    def __init__(self, sock: socket.socket, link: Link) -> None:
        sock.settimeout(TIMEOUT_S)
        self.sock = sock
        self.link = link

    def greet(self) -> Wire:
        """Go through hello and proof. Raises EOFError, or ConnectionRefusedError with the fate's text."""
        while True:
            for frame in self.link.outgoing():
                self.sock.sendall(frame)
            count = self.sock.recv_into(self.link.buffer())
            if not count:
                raise EOFError
            event = self.link.received(count)
            if isinstance(event, FateHeard):
                raise ConnectionRefusedError(f"{event.fate.error.label}: {event.fate.text}")
            if isinstance(event, HelloDone):
                for frame in self.link.outgoing():
                    self.sock.sendall(frame)
                return self

    def hear(self) -> Event:
        """The next event of the link."""
        while True:
            count = self.sock.recv_into(self.link.buffer())
            assert count, "the connection has ended"
            event = self.link.received(count)
            if event is not None:
                return event

    def send(self, *pieces: bytes | memoryview) -> None:
        """Send bytes."""
        self.sock.sendall(b"".join(pieces))

    def send_frame(self, kind: Kind, payload: bytes, round_: int = 0, rows: int = 0, part: int = 0) -> None:
        """Send a frame whatever the state is."""
        self.send(encode_header(Header(kind, round_, rows, part, len(payload))), payload)

    def frame(self) -> tuple[Header, bytes]:
        """Receive one frame. Raises EOFError at the end."""
        header = decode_header(self._exactly(HEADER_BYTES))
        return header, self._exactly(header.length)

    def until(self, kind: Kind) -> tuple[Header, bytes]:
        """The next frame of a kind; what comes before it is thrown away."""
        while True:
            header, payload = self.frame()
            if header.kind is kind:
                return header, payload

    def fate(self) -> Fate:
        """The next fate."""
        return decode_fate(self.until(Kind.FATE)[1])

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise EOFError(f"{len(data)} of {size} bytes")
            data += piece
        return data


def dial(here: Place, channel: Channel, ours: int, theirs: int, **changes: object) -> Wire:
    """Dial a rank of a place as another one and prove ourselves; `changes` are of the configuration, or `hello`."""
    hello = changes.pop("hello", None)
    config: RingConfig = replace(here.config(ours), **changes)  # type: ignore[arg-type]
    said = hello if isinstance(hello, Hello) else config.hello(channel)
    sock = config.connect(here.addresses[theirs], TIMEOUT_S)
    try:
        return Wire(sock, Link(Side.DIALER, channel, said, config.key)).greet()
    except BaseException:
        sock.close()
        raise


def accept(here: Place, rank: int) -> Wire:
    """Accept one connection as a rank."""
    here.listeners[rank].settimeout(TIMEOUT_S)
    sock, _ = here.listeners[rank].accept()
    config = here.config(rank)
    config.accepted(sock)
    return Wire(sock, Link(Side.ACCEPTOR, None, config.hello(Channel.CONTROL), config.key)).greet()


@dataclass(slots=True)
class Puppet:
    """A rank played by hand beside one real rank: its control, its rows to the real rank, and the rows from there."""

    control: Wire
    out: Wire
    back: Wire

    @property
    def wires(self) -> tuple[Wire, Wire, Wire]:
        """All three."""
        return self.control, self.out, self.back

    def close(self) -> None:
        """Close without a word."""
        for wire in self.wires:
            wire.sock.close()


@contextlib.contextmanager
def puppet_stage(*, ready: bool = True, hidden: int = 64, **options: float) -> Iterator[tuple[Ring, Puppet]]:
    """A real rank 0 and a puppet of rank 1."""
    with place(layout(2, hidden), **options) as here, ThreadPoolExecutor(1) as pool:
        real = pool.submit(join, here.config(0))
        puppet = Puppet(dial(here, Channel.CONTROL, 1, 0), dial(here, Channel.ROWS, 1, 0), accept(here, 1))
        ring = real.result(TIMEOUT_S)
        try:
            if ready:
                puppet.control.send(*puppet.control.link.send_describe(describe(here.layout, 1)))
                puppet.control.send(*puppet.control.link.send_ready(Ready(1, 0, 0, 0)))
                ring.descriptions()
                ring.readies()
            yield ring, puppet
        finally:
            ring.stop()
            puppet.close()
            ring.close()


@contextlib.contextmanager
def puppet_head(*, ready: bool = True, hidden: int = 64, **options: float) -> Iterator[tuple[Ring, Puppet]]:
    """A puppet of rank 0 and a real rank 1."""
    with place(layout(2, hidden), **options) as here, ThreadPoolExecutor(1) as pool:
        real = pool.submit(join, here.config(1))
        control = accept(here, 0)
        back = accept(here, 0)
        puppet = Puppet(control, dial(here, Channel.ROWS, 0, 1), back)
        ring = real.result(TIMEOUT_S)
        try:
            if ready:
                ring.describe(describe(here.layout, 1))
                ring.ready(Ready(1, 0, 0, 0))
                while not isinstance(control.hear(), ReadyHeard):
                    pass
            yield ring, puppet
        finally:
            ring.stop()
            puppet.close()
            ring.close()
