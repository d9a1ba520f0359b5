"""What a node says of its machine: memory, cores, and what was measured there of a checkpoint."""

from __future__ import annotations

import asyncio
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ropeway import __version__
from ropeway.checkpoints.cache import cache_directory
from ropeway.placement.calibrated import KEPT
from ropeway.placement.inventory import node_from
from ropeway.placement.machine import usable_cores
from ropeway.transport.iroh.services import Service
from ropeway.transport.iroh.streams import Lines

USABLE: Final = 0.9
"""Share of the free memory that a model may have."""


def facts_service(draining: Callable[[], bool], memory_mb: int = 0) -> Service:
    """The service that tells this machine's facts; `memory_mb` bounds what stages may take, 0 does not.

    Asked with a checkpoint's identity, it also tells what `ropeway calibrate` has measured of that here.
    """

    async def tell(first: dict[str, Any], lines: Lines, _node: str) -> None:
        facts = await asyncio.to_thread(node_facts, str(first.get("checkpoint", "")))
        if memory_mb:
            facts["limit_bytes"] = min(facts["limit_bytes"], memory_mb << 20)
        await lines.write_line({**facts, "draining": draining()})

    return tell


def node_facts(checkpoint: str = "") -> dict[str, Any]:
    """This machine now. `limit_bytes` is what a stage may take; `calibration` a node's entry, if there is one."""
    facts: dict[str, Any] = {
        "release": __version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": usable_cores(),
        "limit_bytes": int(free_bytes() * USABLE),
    }
    measured = calibration(cache_directory(), checkpoint) if checkpoint else None
    return facts if measured is None else {**facts, "calibration": measured}


def calibration(cache: Path, checkpoint: str) -> dict[str, Any] | None:
    """The latest calibration of a checkpoint that the cache keeps, as a nodes file has it."""
    files = sorted((cache / KEPT).glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files:
        try:
            entry = json.loads(path.read_text())["node"]
            if entry.get("model") == checkpoint:
                node_from(entry)
                return dict(entry)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def free_bytes() -> int:
    """Memory that can be had without swapping."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 2
