"""One accepted connection before it is part of the ring: it proves itself, or it is refused by name and dropped."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from enum import Enum, auto

from ropeway.transport.ending import failure, printable
from ropeway.wire import Event, FateHeard, Hello, HelloDone, Link, ProbeHeard, ProtocolError


class Visit(Enum):
    """What a guest is doing at the door."""

    UNPROVED = auto()
    PROVED = auto()
    """Proved: hand it to the ring, or answer its probes."""
    LEAVING = auto()
    """Refused; its input is thrown away until it closes, so that a reset does not swallow the refusal."""
    GONE = auto()


class Guest:
    """A non-blocking socket and its link. `until` is when it is dropped whatever it says (time.monotonic).

    `judge` judges the hello of one that has proved itself again: its place may have been taken meanwhile.
    """

    def __init__(
        self, sock: socket.socket, link: Link, address: str, until: float, judge: Callable[[Hello], None]
    ) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.link = link
        self.address = address
        self.until = until
        self._judge = judge
        self.visit = Visit.UNPROVED
        self.why = "did not prove itself in time"
        """Why it was dropped, for the log."""

    def read(self, rank: int) -> None:
        """Read what has come and answer it, and move `visit` on. `rank` is ours, for refusals."""
        try:
            if self.visit is Visit.LEAVING:
                if not self.sock.recv(1 << 16):
                    self.visit = Visit.GONE
                return
            count = self.sock.recv_into(self.link.buffer())
            if not count:
                self.why = "closed the connection before it had proved itself"
                self.visit = Visit.GONE
                return
            event = self.link.received(count)
            if isinstance(event, HelloDone):
                self._judge(event.peer)
            for frame in self.link.outgoing():
                self._send(frame)
            self._hear(event)
        except BlockingIOError:
            return
        except OSError as error:
            self.why = error.strerror or str(error)
            self.visit = Visit.GONE
        except ProtocolError as error:
            self.refuse(error, rank)

    def refuse(self, error: ProtocolError, rank: int) -> None:
        """Say by name why not, and close our half."""
        self.why = str(error)
        self.visit = Visit.LEAVING
        fate = failure(error.code, rank, error.detail)
        with contextlib.suppress(OSError, ProtocolError):
            self._send(b"".join(self.link.send_fate(fate)))
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket; never raises."""
        with contextlib.suppress(OSError):
            self.sock.close()

    def _hear(self, event: Event | None) -> None:
        match event:
            case HelloDone():
                self.visit = Visit.PROVED
            case FateHeard(fate):
                self.why = f"refused us: {printable(fate.text) or fate.error.label}"
                self.visit = Visit.GONE
            case ProbeHeard(round_, _):
                self._send(b"".join(self.link.send_echo(round_)))
            case _:
                pass

    def _send(self, frame: bytes) -> None:
        """A few hundred bytes, which fit into the buffer of any socket whose peer reads at all."""
        if self.sock.send(frame) < len(frame):
            raise BrokenPipeError("it does not read our answers")
