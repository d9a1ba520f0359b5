"""JSON objects, one a line, over a blocking stream socket: how programs speak to the agent on their machine.

Never reads past the end of a line, because what follows one can be the bytes of another protocol.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Final

LINE_BYTES: Final = 1 << 20
"""Longest line of either side."""


class LineError(ValueError):
    """The other side's line is too long, no JSON, or no object."""


def encode_line(value: dict[str, Any]) -> bytes:
    """One line. Raises LineError where it would be too long."""
    line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    if len(line) > LINE_BYTES:
        raise LineError(f"a line of {len(line)} bytes, at most {LINE_BYTES}")
    return line


def decode_line(line: bytes | bytearray) -> dict[str, Any]:
    """The object in one line. Raises LineError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise LineError("a line that is not JSON") from None
    if not isinstance(value, dict):
        raise LineError("a line that is not a JSON object")
    return value


def read_line(sock: socket.socket, timeout_s: float | None) -> dict[str, Any] | None:
    """The next line's object; None at the end of the stream. Leaves `sock` blocking.

    Raises TimeoutError after `timeout_s` (None: never), LineError, OSError.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    line = bytearray()
    try:
        while True:
            if deadline is not None:
                sock.settimeout(max(deadline - time.monotonic(), 1e-3))
            ahead = sock.recv(4096, socket.MSG_PEEK)
            if not ahead:
                if line:
                    raise ConnectionError("the connection ended in the middle of a line")
                return None
            line += sock.recv(ahead.find(b"\n") + 1 or len(ahead))
            if line.endswith(b"\n"):
                return decode_line(line)
            if len(line) > LINE_BYTES:
                raise LineError(f"a line of more than {LINE_BYTES} bytes")
    finally:
        sock.settimeout(None)


def send_line(sock: socket.socket, value: dict[str, Any]) -> None:
    """Send one object. Raises LineError, OSError."""
    sock.sendall(encode_line(value))
