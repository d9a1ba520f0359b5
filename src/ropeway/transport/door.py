"""The acceptor's side: one listener for all channels, for as long as the ring lives.

A stranger, a port scan, a wrong key or a slow dialer is dropped and logged here, in a thread of its own, and nothing
that they do reaches the ring. It stays open after bring-up, because link probes come at any time and because a rank
that is started twice should be told `duplicate_rank` and not find a closed port.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from ropeway.transport.config import RingConfig
from ropeway.transport.connection import Connection
from ropeway.transport.guest import Guest, Visit
from ropeway.transport.waker import Waker
from ropeway.wire import PROOF_S, UNPROVED_PER_RANK, Channel, Hello, Link, ProtocolError, Side

log = logging.getLogger("ropeway.transport")

PROBE_S: Final = 30.0
"""A connection that measures the link is dropped after so long without a probe."""
LEAVE_S: Final = 1.0
"""How long a refused guest may take to close."""
NO_DESCRIPTORS_PAUSE_S: Final = 0.1


class Door:
    """Accepts, proves and hands over. `judge` refuses a hello by raising ProtocolError and keeps nothing.

    `welcome` takes a proved connection into the ring, or raises ProtocolError.
    """

    def __init__(
        self,
        config: RingConfig,
        listener: socket.socket,
        judge: Callable[[Hello], None],
        welcome: Callable[[Connection], None],
        proof_s: float = PROOF_S,
    ) -> None:
        self._config = config
        self._listener = listener
        self._judge = judge
        self._welcome = welcome
        self._proof_s = proof_s
        self._guests: dict[int, Guest] = {}
        self._most = UNPROVED_PER_RANK * config.layout.world
        self._waker = Waker()
        self._poller = select.poll()
        self._closing = False
        self.refused = ""
        """The address that was refused or dropped last, and why."""
        listener.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="ropeway door", daemon=True)
        self._thread.start()

    @property
    def guests(self) -> int:
        """Connections that are at the door now: unproved, measuring the link, or on their way out."""
        return len(self._guests)

    def close(self, timeout_s: float = 1.0) -> None:
        """Drop every guest and stop. The listener is left to its owner."""
        self._closing = True
        self._waker.wake()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        self._poller.register(self._listener, select.POLLIN)
        self._poller.register(self._waker, select.POLLIN)
        listening = self._listener.fileno()
        try:
            while not self._closing:
                for fd, _ in self._poller.poll(self._patience_ms()):
                    if fd == listening:
                        self._accept()
                    elif fd in self._guests:
                        self._attend(fd)
                self._drop_late(time.monotonic())
        finally:
            for guest in self._guests.values():
                guest.close()
            self._waker.close()

    def _patience_ms(self) -> float | None:
        if not self._guests:
            return None
        return max(0.0, min(guest.until for guest in self._guests.values()) - time.monotonic()) * 1e3 + 1

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("cannot accept a connection: %s", error.strerror or error)
            time.sleep(NO_DESCRIPTORS_PAUSE_S)
            return
        try:
            address = self._config.accepted(sock)
        except OSError:
            sock.close()
            return
        self._make_room()
        link = Link(Side.ACCEPTOR, None, self._config.hello(Channel.CONTROL), self._config.key, accept=self._judge)
        self._guests[sock.fileno()] = Guest(sock, link, address, time.monotonic() + self._proof_s, self._judge)
        self._poller.register(sock, select.POLLIN)

    def _make_room(self) -> None:
        """At most so many unproved guests. The oldest makes room, since a rank proves itself at once."""
        unproved = [fd for fd, guest in self._guests.items() if guest.visit is not Visit.PROVED]
        if len(unproved) >= self._most:
            oldest = self._guests[unproved[0]]
            oldest.why = "did not prove itself before others came"
            self._drop(unproved[0])

    def _attend(self, fd: int) -> None:
        guest = self._guests[fd]
        before = guest.visit
        guest.read(self._config.rank)
        if before is Visit.PROVED:
            guest.until = time.monotonic() + PROBE_S
        if guest.visit is Visit.PROVED and before is Visit.UNPROVED:
            self._let_in(fd, guest)
        if guest.visit is Visit.LEAVING and before is not Visit.LEAVING:
            guest.until = time.monotonic() + LEAVE_S
            self._note("refused", guest)
        if guest.visit is Visit.GONE:
            self._drop(fd, quiet=before is not Visit.UNPROVED)

    def _let_in(self, fd: int, guest: Guest) -> None:
        peer = guest.link.peer
        assert peer is not None
        if peer.channel is Channel.PROBE:
            guest.until = time.monotonic() + PROBE_S
            return
        connection = Connection(guest.sock, guest.link, peer.rank, peer.channel, Side.ACCEPTOR, guest.address)
        self._poller.unregister(fd)
        try:
            self._welcome(connection)
        except ProtocolError as error:
            self._poller.register(fd, select.POLLIN)
            guest.refuse(error, self._config.rank)
        else:
            del self._guests[fd]

    def _drop(self, fd: int, quiet: bool = False) -> None:
        guest = self._guests.pop(fd)
        self._poller.unregister(fd)
        guest.close()
        if not quiet:
            self._note("dropped", guest)

    def _note(self, what: str, guest: Guest) -> None:
        self.refused = f"{guest.address}: {guest.why}"
        log.warning("%s %s", what, self.refused)

    def _drop_late(self, now: float) -> None:
        for fd in [fd for fd, guest in self._guests.items() if guest.until <= now]:
            self._drop(fd, quiet=self._guests[fd].visit is not Visit.UNPROVED)
