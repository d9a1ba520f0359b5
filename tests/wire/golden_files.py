"""The golden files of wire.md 10, and the constants that their bytes were made with."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ropeway.wire import Channel, Hello, Side
from ropeway.wire.capture import parse_hex

GOLDEN = Path(__file__).parent / "golden"

KEY = bytes(range(32))
CANONICAL = (
    b'{"boundary":{"hidden":576,"planes":1,"row_dtype":"f32","taps":[]},"checkpoint":"'
    + b"ab" * 32
    + b'","head_rank":0,'
    b'"layers":30,"ranges":[[0,15],[15,30]],"sampler":"first","world":2}'
)
FINGERPRINT = hashlib.sha256(CANONICAL).digest()
DIALER_NONCE = b"\x11" * 32
ACCEPTOR_NONCE = b"\x22" * 32


@dataclass(frozen=True, slots=True)
class Golden:
    """One file: its bytes, the error that it must raise ("" in a good one), and, of a conversation, who hears it."""

    name: str
    raw: bytes
    error: str
    hears: str


def load(name: str) -> Golden:
    text = (GOLDEN / f"{name}.hex").read_text()
    return Golden(name, parse_hex(text), _comment(text, "error"), _comment(text, "hears"))


def names() -> list[str]:
    return sorted(path.stem for path in GOLDEN.glob("*.hex"))


def alone() -> list[Golden]:
    """The files whose frames are judged without a connection's state."""
    return [golden for golden in map(load, names()) if not golden.hears]


def conversations() -> list[Golden]:
    """The files that one end of a connection hears from its beginning."""
    return [golden for golden in map(load, names()) if golden.hears]


def listener(hears: str) -> tuple[Side, Channel | None, Hello]:
    """Who hears a conversation: "acceptor 1 of 2", or "dialer 1 of 2 on rows"."""
    match = re.fullmatch(r"(dialer|acceptor) (\d+) of (\d+)(?: on (\w+))?", hears)
    assert match, hears
    side = Side[match[1].upper()]
    channel = Channel[match[4].upper()] if match[4] else None
    nonce = DIALER_NONCE if side is Side.DIALER else ACCEPTOR_NONCE
    return side, channel, Hello(int(match[2]), int(match[3]), channel or Channel.CONTROL, FINGERPRINT, nonce)


def _comment(text: str, key: str) -> str:
    match = re.search(rf"^# {key}: (.+)$", text, re.MULTILINE)
    return match[1] if match else ""
