"""What both ends of a loopback cluster share: the proof, a connection of lines that beats, a box of messages."""

from __future__ import annotations

import hashlib
import hmac
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ropeway.cluster.client import AgentError
from ropeway.cluster.messages import Message, stage_name
from ropeway.transport import tcp
from ropeway.transport.lines import LineError, read_line, send_line

TICKET: Final = "tcp:"
"""How a ticket begins."""
BEAT_S: Final = 0.5
SILENCE_S: Final = 6.0
PROOF_S: Final = 10.0


def prove(key: bytes, side: str, seed_nonce: str, member_nonce: str) -> str:
    """What a side says to show that it has the key."""
    return hmac.new(key, f"ropeway loopback 1 {side} {seed_nonce} {member_nonce}".encode(), hashlib.sha256).hexdigest()


def read_ticket(ticket: str) -> tuple[str, bytes]:
    """The seed's address and the key. Raises ValueError, which never holds the ticket."""
    address, _, key = ticket.removeprefix(TICKET).rpartition(":")
    try:
        tcp.parse_address(address)
        return address, bytes.fromhex(key)
    except ValueError:
        raise ValueError("it is not a ticket: tcp:HOST:PORT:KEY") from None


class Box:
    """A registered name and its messages. As `cluster.Inbox`."""

    def __init__(self, name: str, give_up: Callable[[], None]) -> None:
        self.name = name
        self.mail: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._give_up = give_up

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises TimeoutError, AgentError."""
        try:
            message = self.mail.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        if message is None:
            self.mail.put(None)
            raise AgentError("the orchestrator has gone")
        return message

    def close(self) -> None:
        """Give the name up."""
        self._give_up()


class Link:
    """One proved connection: lines out from any thread, a beat twice a second, lines in by `read`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin to beat."""
        threading.Thread(target=self._beat, name="loopback beat", daemon=True).start()

    def send(self, value: dict[str, Any]) -> bool:
        """One line; False where the connection has ended."""
        try:
            with self._lock:
                send_line(self.sock, value)
        except (OSError, LineError):
            return False
        return True

    def read(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Hand lines to `take` until the connection ends, breaks the rules or is silent."""
        with suppress(OSError, LineError, TimeoutError):
            while (line := read_line(self.sock, SILENCE_S)) is not None:
                if line:
                    take(line)

    def close(self) -> None:
        """End the connection, for whoever reads it too."""
        self._closed.set()
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_S) and self.send({}):
            pass


def addresses_of(names: dict[str, str], world: int) -> tuple[str, ...]:
    """Every rank's address: a node's id is where its rank listens. Raises KeyError where a stage has no name."""
    return tuple(names[stage_name(stage)] for stage in range(world))
