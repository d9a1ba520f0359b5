"""How an agent is to run: what the flags of `ropeway up` and `ropeway node` say, and a parent of an agent."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

DEFAULT_RELAYS: Final = "default"
NO_RELAYS: Final = "none"


def check_relays(relays: str) -> None:
    """Refuse, with ValueError, what is neither default, none, nor URLs with commas between."""
    if relays in (DEFAULT_RELAYS, NO_RELAYS):
        return
    for url in relays.split(","):
        try:
            parts = urlsplit(url.strip())
            known = parts.scheme in ("https", "http") and bool(parts.hostname)
        except ValueError:
            known = False
        if not known:
            raise ValueError(f"relays: {url.strip()!r} is neither default, none, nor a URL")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Raises ValueError, naming the field.

    `ticket` joins a cluster, `first` begins one; with neither the node goes back into the cluster that its home knows.
    `bind` are the HOST:PORT to listen at (UDP), one an address family; empty: every interface, which iroh encrypts.
    `relays` is default, none, or URLs with commas between. `wan` waits for far nodes as long as they need. `memory_mb`
    bounds what stages may take here; 0: most of what is free.
    """

    home: str
    ticket: str = ""
    first: bool = False
    label: str = ""
    bind: tuple[str, ...] = ()
    relays: str = DEFAULT_RELAYS
    wan: bool = False
    memory_mb: int = 0

    def __post_init__(self) -> None:
        if self.first and self.ticket:
            raise ValueError("ticket: the first node of a cluster has none")
        if len(self.label.encode()) > 63 or not self.label.isprintable():
            raise ValueError(f"label: {self.label!r} is not a printable name of at most 63 bytes")
        check_relays(self.relays)

    @property
    def name(self) -> str:
        """The node's name for people."""
        return self.label or socket.gethostname()[:63]

    def dump(self) -> bytes:
        """One JSON line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def load(cls, line: bytes) -> AgentSettings:
        """What `dump` wrote. Raises ValueError."""
        value: dict[str, Any] = json.loads(line)
        return cls(**{**value, "bind": tuple(value["bind"])})
