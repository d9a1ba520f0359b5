"""The dialer's side of the probe channel: how long small and large frames take to a rank and back (wire.md 8, Probe).

The acceptor's side is the door, which answers at any time, in bring-up and while a ring runs.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

from ropeway.transport import tcp
from ropeway.transport.config import RingConfig
from ropeway.transport.door import Door
from ropeway.transport.ending import printable
from ropeway.wire import (
    Channel,
    EchoHeard,
    ErrorCode,
    Event,
    FateHeard,
    Hello,
    HelloDone,
    Link,
    ProtocolError,
    Side,
)

MOST_BYTES: Final = 64 << 20
"""The largest probe (wire.md 2)."""
_BLOCK: Final = 1 << 20


class ProbeRefused(ConnectionError):
    """The other side has refused us by name, or answers wrongly; another try would be no use."""


class Prober:
    """A proved probe connection to `rank`. One thread uses it. Raises OSError (a timeout among them), ProbeRefused."""

    def __init__(
        self,
        config: RingConfig,
        rank: int,
        timeout_s: float,
        connect: Callable[[str, float], socket.socket] = tcp.connect,
    ) -> None:
        self._sock = connect(config.addresses[rank], timeout_s)
        self._number = 0
        try:
            self._sock.settimeout(timeout_s)
            self._link = Link(Side.DIALER, Channel.PROBE, config.hello(Channel.PROBE), config.key)
            while not isinstance(self._hear(), HelloDone):
                pass
            self._flush()
        except BaseException:
            self.close()
            raise

    def echo_s(self, payload_bytes: int) -> float:
        """Seconds from the first byte of a probe to its echo. At most `MOST_BYTES`."""
        if not 0 <= payload_bytes <= MOST_BYTES:
            raise ValueError(f"payload_bytes: {payload_bytes} is outside 0..{MOST_BYTES}")
        self._number += 1
        payload = memoryview(bytes(payload_bytes))
        started = time.perf_counter()
        head, body = self._link.send_probe(self._number, payload)
        if payload_bytes <= _BLOCK:
            self._sock.sendall(bytes(head) + bytes(body))
        else:
            self._sock.sendall(head)
            self._sock.sendall(body)
        while not isinstance(self._hear(), EchoHeard):
            pass
        return time.perf_counter() - started

    def close(self) -> None:
        """Close; a probe connection needs no last word."""
        with contextlib.suppress(OSError):
            self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _flush(self) -> None:
        for frame in self._link.outgoing():
            self._sock.sendall(frame)

    def _hear(self) -> Event | None:
        """The next event, or None. Raises EOFError as ConnectionResetError, ProbeRefused."""
        self._flush()
        count = self._sock.recv_into(self._link.buffer())
        if not count:
            raise ConnectionResetError("it closed the connection")
        try:
            event = self._link.received(count)
        except ProtocolError as error:
            raise ProbeRefused(f"it answers wrongly: {error}") from None
        if isinstance(event, FateHeard):
            raise ProbeRefused(f"it refuses us: {event.fate.error.label}: {printable(event.fate.text)}")
        return event


@contextlib.contextmanager
def answering(config: RingConfig, heard: Callable[[int], None]) -> Iterator[Door]:
    """Answer probes, and nothing else, at our address until the block ends. `heard` gets dialers' ranks.

    Raises ValueError or OSError where we cannot listen.
    """

    def judge(hello: Hello) -> None:
        if hello.channel is not Channel.PROBE:
            raise ProtocolError(ErrorCode.WRONG_CHANNEL, "only links are measured here; there is no ring yet")
        heard(hello.rank)

    listener = config.listener or tcp.listen(config.listen or config.addresses[config.rank])
    door = Door(config, listener, judge, lambda _: None)
    try:
        yield door
    finally:
        door.close()
        if listener is not config.listener:
            listener.close()
