"""A ticket: one line that brings a node into a cluster. It holds the cluster's key, so it is as secret as a key.

`ropeway1` and base32 without padding, in either case, of: the key (32 bytes), the id of a node that is there (32), a
CRC-32 of all the rest (4, big-endian), and that node's address as text. Pure, but for the picture.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass, field
from typing import Final

from ropeway.transport.iroh.endpoint import NodeAddress

MARK: Final = "ropeway1"
KEY_BYTES: Final = 32
ID_BYTES: Final = 32
_FIXED: Final = KEY_BYTES + ID_BYTES + 4
LONGEST: Final = 1024


@dataclass(frozen=True, slots=True)
class Ticket:
    """`key` is the cluster's, `node` the id (64 hex digits) of a node that is there, `address` where it was then."""

    key: bytes = field(repr=False)
    node: str
    address: NodeAddress

    def text(self) -> str:
        """The line."""
        head, tail = self.key + bytes.fromhex(self.node), self.address.text().encode()
        check = zlib.crc32(head + tail).to_bytes(4, "big")
        return MARK + base64.b32encode(head + check + tail).decode().rstrip("=").lower()

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """The inverse of `text`. Raises ValueError, which never holds the ticket."""
        text = "".join(text.split()).lower()
        if not text.startswith(MARK) or len(text) > LONGEST:
            raise ValueError("ticket: this is no ticket; `ropeway up` prints one")
        body = text.removeprefix(MARK).upper()
        try:
            raw = base64.b32decode(body + "=" * (-len(body) % 8))
        except binascii.Error:
            raise ValueError("ticket: it is damaged; copy all of it, as one line") from None
        head, check, tail = raw[: _FIXED - 4], raw[_FIXED - 4 : _FIXED], raw[_FIXED:]
        if len(raw) < _FIXED or zlib.crc32(head + tail).to_bytes(4, "big") != check:
            raise ValueError("ticket: it is damaged; copy all of it, as one line")
        try:
            address = NodeAddress.parse(tail.decode())
        except ValueError:
            raise ValueError("ticket: it holds no address that we know") from None
        return cls(head[:KEY_BYTES], head[KEY_BYTES:].hex(), address)


def is_ticket(text: str) -> bool:
    """Whether a text looks like one, however it was broken into lines."""
    return "".join(text.split()).lower().startswith(MARK)


def picture(text: str) -> str:
    """The ticket as a QR code of half blocks, for a terminal; empty where `segno` is not installed."""
    try:
        import segno
    except ImportError:
        return ""
    rows = [list(row) for row in segno.make(text.upper(), error="l", micro=False).matrix_iter(border=2)]
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    blocks = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}  # light modules drawn: terminals are mostly dark
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return "\n".join("".join(blocks[bool(a), bool(b)] for a, b in zip(up, down, strict=True)) for up, down in pairs)
