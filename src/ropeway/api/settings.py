"""What an operator decides about the front door, and the API keys' file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

SHORTEST_KEY = 8
"""Characters; a shorter key is a mistake."""

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""What a browser on this machine calls it. See `Settings.hosts`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`api_keys` are SHA-256 digests; without any, no key is asked for.

    `hosts` are the names that a Host header may have (without the port); None takes any. A server on loopback without
    a key should set LOOPBACK_NAMES, so that a page elsewhere cannot reach it by pointing a name of its own at it.
    """

    api_keys: tuple[bytes, ...] = field(default=(), repr=False)
    hosts: frozenset[str] | None = None
    max_body_bytes: int = 0
    """0: what a prompt that fills the context could take, and a MiB."""
    body_timeout_s: float = 30.0
    ping_s: float = 15.0
    """A stream with nothing to say for so long gets a comment, so that what lies between keeps it open."""
    certificate: str = ""
    """The id of the certificate (docs/exactness.md) of the placement named so in `certified`; empty without one."""
    certified: str = ""
    page: Path = Path(__file__).parent / "page"

    def body_limit(self, context: int) -> int:
        """Bytes of the largest body taken. A token is seldom more than 16 bytes of JSON, escapes included."""
        return self.max_body_bytes or (1 << 20) + 16 * context


def digest(key: str) -> bytes:
    """What is kept and compared of a key."""
    return hashlib.sha256(key.encode()).digest()


def read_api_keys(path: Path) -> tuple[bytes, ...]:
    """The digests of the keys in a file: one a line; empty lines and lines that begin with # do not count.

    Raises ValueError, which never quotes the file, and OSError.
    """
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except UnicodeDecodeError:
        raise ValueError(f"api-key: {path} is not a text file") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ValueError(f"api-key: {path} holds no key")
    if any(len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ValueError(f"api-key: a key in {path} is shorter than {SHORTEST_KEY} characters or not plain ASCII")
    return tuple(digest(key) for key in keys)
