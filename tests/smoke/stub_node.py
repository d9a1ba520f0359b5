"""`pp-gpu-node` with a rank that needs no engine: it loads, joins and answers as STUB_RANK says.

STUB_RANK: ok; never-loaded; never-whole; entry-never-whole (rank 0 alone); empty; slow (it never answers); dies (its
process ends when asked).
"""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from typing import Any

from ropeway.cli.gpu_node import main
from ropeway.smoke import node


class StubRank:
    """As `RankProcess`, without a process."""

    def __init__(self, stage: int, setup: dict[str, Any], listener: object, environment: Mapping[str, str]) -> None:
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.status: int | None = None
        self.tail = ["what the worker wrote last"]
        self._how = os.environ.get("STUB_RANK", "ok")
        if self._how == "entry-never-whole":
            self._how = "ok" if stage else "never-whole"
        assert len(bytes.fromhex(setup["key"])) == 32
        assert not {"SEED_ADDR", "CONTAINER_API_KEY", "VAST_API_KEY"} & environment.keys()
        if self._how != "never-loaded":
            self.events.put({"event": "loaded", "load_ms": 1, "weights_bytes": 1})

    def say(self, op: str, **fields: Any) -> None:
        if op == "join" and self._how != "never-whole":
            self.events.put({"event": "whole"})
        if op == "generate" and self._how == "dies":
            self.status = -9
        if op == "generate" and self._how in ("ok", "empty"):
            text = "" if self._how == "empty" else f"hello to {fields['prompt']!r}"
            self.events.put({"event": "reply", "id": fields["id"], "text": text, "token_ids": [5, 7], "error": ""})

    def end(self) -> None:
        """There is nothing to end."""


class HurriedWatchdog(node.Watchdog):
    """One second is ten minutes once there is a file that STUB_HURRY names."""

    @property
    def unseen_s(self) -> float:
        hurried = os.path.exists(os.environ.get("STUB_HURRY", ""))
        return super().unseen_s * (600.0 if hurried else 1.0)


if __name__ == "__main__":
    setattr(node, "Watchdog", HurriedWatchdog)  # noqa: B010 (as below)
    setattr(node, "RankProcess", StubRank)  # noqa: B010 (the module does not export the name)
    main()
