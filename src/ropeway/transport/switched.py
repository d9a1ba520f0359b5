"""A ring over the node agents: the same frames, through a Unix socket to the agent here, which carries them over iroh.

An agent's switch takes one line that says what is wanted and where, answers with one line, and is a plain stream of
bytes from then on. A rank listens on a Unix socket of its own, to which its agent brings what other nodes dial.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ropeway.transport import tcp
from ropeway.transport.lines import LineError, read_line, send_line

BACKLOG: Final = 16
NAMED_S: Final = 1.0
"""How long our own agent may take to say whose connection it brings."""


class SwitchRefused(ConnectionError):
    """The agent, or the node that was asked for, refuses and says why."""


def ask(switch: Path, question: dict[str, Any], timeout_s: float) -> tuple[socket.socket, dict[str, Any]]:
    """A stream through the agent's switch, and the line that answered. Raises OSError, SwitchRefused among them."""
    deadline = time.monotonic() + timeout_s
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(str(switch))
        send_line(sock, {**question, "timeout_s": timeout_s})
        reply = read_line(sock, max(deadline - time.monotonic(), 1e-3))
        if reply is None:
            raise ConnectionError("the agent closed the connection")
        if "error" in reply:
            raise SwitchRefused(str(reply["error"]))
    except LineError as error:
        sock.close()
        raise ConnectionError(str(error)) from error
    except BaseException:
        sock.close()
        raise
    return sock, reply


def listen(path: Path) -> socket.socket:
    """Where a rank listens. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


@dataclass(frozen=True, slots=True)
class Switched:
    """How a rank of the ring `ring` reaches the others: `connect` and `accepted` are for `RingConfig`.

    Its addresses are NODE:RANK, where NODE is a node's id, the beginning of one, or a registered name.
    """

    switch: Path
    ring: str

    def connect(self, address: str, timeout_s: float) -> socket.socket:
        """One attempt to reach the rank at NODE:RANK. Raises OSError, ValueError (syntax)."""
        node, rank = tcp.parse_address(address)
        question = {"to": "ring", "node": node, "ring": self.ring, "rank": rank}
        sock, _ = ask(self.switch, question, timeout_s)
        return sock

    def accepted(self, sock: socket.socket) -> str:
        """The node whose connection our agent has brought. Raises OSError."""
        try:
            line = read_line(sock, NAMED_S)
        except (LineError, TimeoutError) as error:
            raise ConnectionError(f"the agent does not say whose connection this is: {error}") from error
        if line is None:
            raise ConnectionError("the agent closed the connection")
        return str(line.get("from", "an unnamed node"))
