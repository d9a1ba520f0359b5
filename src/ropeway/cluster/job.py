"""What an orchestrator tells a node to run: one rank of one ring, as a value that has been judged.

Whoever asks has proved the cluster's key. Still a node runs nothing but our own rank process: no command, no code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ropeway.transport import tcp

LONGEST_ADDRESS: Final = 128
LONGEST_TEXT: Final = 4096
MOST_RANKS: Final = 1024
FORBIDDEN: Final = ("worker_cmd",)
"""Options that name a command: a node runs none that another one names."""
_KEY: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Job:
    """`options` are those of `launch.placement.Options`, with plain values. `addresses` are NODE:RANK."""

    ring: str
    rank: int
    options: dict[str, Any]
    addresses: tuple[str, ...]
    key: bytes = field(repr=False)
    bring_up_s: float

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Job:
        """What `dump` gave. Raises ValueError naming the field."""
        ring, rank, options = value.get("ring"), value.get("rank"), value.get("options")
        addresses, key, bring_up_s = value.get("addresses"), value.get("key"), value.get("bring_up_s")
        if not isinstance(ring, str) or not ring.isalnum() or not ring.isascii() or len(ring) > 16:
            raise ValueError("ring: not a name of up to 16 letters and digits")
        if not isinstance(addresses, list | tuple) or not 2 <= len(addresses) <= MOST_RANKS:
            raise ValueError("addresses: not a list of 2 or more")
        for address in addresses:
            if not isinstance(address, str) or len(address) > LONGEST_ADDRESS:
                raise ValueError("addresses: not a list of texts")
            tcp.parse_address(address)
        if type(rank) is not int or not 0 < rank < len(addresses):
            raise ValueError(f"rank: not one of 1..{len(addresses) - 1}")
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ValueError("key: not 64 hex digits")
        if not isinstance(bring_up_s, int | float) or not 0 < bring_up_s <= 3600:
            raise ValueError("bring_up_s: not a number of seconds up to 3600")
        if not isinstance(options, dict):
            raise ValueError("options: not an object")
        for name, option in options.items():
            _judge(name, option)
        return cls(ring, rank, options, tuple(addresses), bytes.fromhex(key), float(bring_up_s))

    def dump(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "ring": self.ring,
            "rank": self.rank,
            "options": self.options,
            "addresses": list(self.addresses),
            "key": self.key.hex(),
            "bring_up_s": self.bring_up_s,
        }

    def setup(self, listener: int, switch: str) -> bytes:
        """The line that `launch.child` reads: this job, the listener that it inherits, and its agent's switch."""
        return json.dumps({**self.dump(), "listener": listener, "switch": switch}).encode() + b"\n"


def _judge(name: str, option: Any) -> None:
    if name in FORBIDDEN and option:
        raise ValueError(f"{name}: a node runs no command that another one names")
    plain = isinstance(option, str | int | float | bool) or option is None
    if not plain and not (isinstance(option, list) and all(isinstance(one, str | int) for one in option)):
        raise ValueError(f"{name}: not a plain value")
    if len(json.dumps(option)) > LONGEST_TEXT:
        raise ValueError(f"{name}: too long")
