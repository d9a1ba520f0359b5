"""What a node says of its machine: memory, cores, what it computes with."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable
from typing import Any, Final

from ropeway import __version__
from ropeway.transport.iroh.streams import Lines
from ropeway.transport.iroh.switchboard import Service

USABLE: Final = 0.9
"""Share of the free memory that a model may have."""


def facts_service(draining: Callable[[], bool], memory_mb: int = 0) -> Service:
    """The service that tells this machine's facts; `memory_mb` bounds what stages may take, 0 does not."""

    async def tell(_first: dict[str, Any], lines: Lines, _node: str) -> None:
        facts = await asyncio.to_thread(machine_facts)
        if memory_mb:
            facts["limit_bytes"] = min(facts["limit_bytes"], memory_mb << 20)
        await lines.write_line({**facts, "draining": draining()})

    return tell


def machine_facts() -> dict[str, Any]:
    """This machine now. `limit_bytes` is what a stage may take."""
    return {
        "release": __version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": usable_cores(),
        "limit_bytes": int(free_bytes() * USABLE),
    }


def usable_cores() -> int:
    """Processors that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
