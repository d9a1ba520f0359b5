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
class Weights:
    """Where a checkpoint's bytes can be had: its files' keys by name, and the ids of nodes that may have them.

    `text` names it for people. Empty where the node finds the model by itself.
    """

    text: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, value: Any) -> Weights:
        """What `dump` gave. Raises ValueError."""
        if not isinstance(value, dict):
            raise ValueError("weights: not an object")
        text, keys, nodes = value.get("text", ""), value.get("keys", {}), value.get("nodes", [])
        if not isinstance(text, str) or len(text) > LONGEST_TEXT:
            raise ValueError("weights: text is not a name")
        if not isinstance(keys, dict) or not all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys.values()):
            raise ValueError("weights: keys are not 64 hex digits each")
        if not isinstance(nodes, list | tuple) or not all(isinstance(n, str) and _KEY.fullmatch(n) for n in nodes):
            raise ValueError("weights: nodes are not ids")
        return cls(text, keys, tuple(nodes))

    def dump(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"text": self.text, "keys": self.keys, "nodes": list(self.nodes)}


@dataclass(frozen=True, slots=True)
class Job:
    """`options` are those of `launch.placement.Options`, with plain values. `addresses` are NODE:RANK."""

    ring: str
    rank: int
    options: dict[str, Any]
    addresses: tuple[str, ...]
    key: bytes = field(repr=False)
    bring_up_s: float
    weights: Weights = field(default_factory=Weights)

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
        weights = Weights.parse(value.get("weights", {}))
        return cls(ring, rank, options, tuple(addresses), bytes.fromhex(key), float(bring_up_s), weights)

    def dump(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "ring": self.ring,
            "rank": self.rank,
            "options": self.options,
            "addresses": list(self.addresses),
            "key": self.key.hex(),
            "bring_up_s": self.bring_up_s,
            "weights": self.weights.dump(),
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
