"""What this machine is: memory and what a model may use of it, cores, bandwidth, how busy others keep it. Measures."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ropeway.engines.cores import usable_cores as usable_cores

FLOOR_BYTES: Final = 1_500_000_000
"""Memory that is left to the system at the least."""
FLOOR_SHARE: Final = 0.1
BANDWIDTH_BYTES: Final = 256 << 20
BANDWIDTH_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts of a machine. Bytes; `limit_bytes` is what a model may use (`gpu_limit` where a device has its own)."""

    name: str
    processor: str
    cores: int
    memory_bytes: int
    limit_bytes: int
    unified: bool
    read_bytes_per_s: float


@dataclass(slots=True)
class Busy:
    """The share of the machine's cores that other processes had; None where that cannot be told."""

    others: float | None = None


def machine_facts(*, bandwidth: bool = True) -> Machine:
    """Look around; `bandwidth` measures for about half a second."""
    total = memory_bytes()
    return Machine(
        platform.node() or "here",
        _processor(),
        usable_cores(),
        total,
        limit_of(total),
        sys.platform == "darwin" and platform.machine() == "arm64",
        read_bandwidth() if bandwidth else 0.0,
    )


def limit_of(total_bytes: int) -> int:
    """What a model may use of so much memory: all but the system's floor."""
    return max(0, total_bytes - max(FLOOR_BYTES, round(total_bytes * FLOOR_SHARE)))


def read_bandwidth() -> float:
    """Bytes a second that one thread reads from memory, past the caches; the best of a few tries."""
    import numpy as np

    block = np.ones(BANDWIDTH_BYTES // 8)
    best = float("inf")
    for _ in range(BANDWIDTH_TRIES):
        started = time.perf_counter()
        block.max()
        best = min(best, time.perf_counter() - started)
    return BANDWIDTH_BYTES / best


def resident_bytes() -> int:
    """Memory that this process occupies; 0 where that cannot be told."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


@contextmanager
def watch_others() -> Iterator[Busy]:
    """How much of the machine other processes have in a stretch of time."""
    found, before, started = Busy(), _ticks(), time.perf_counter()
    yield found
    seconds, after = time.perf_counter() - started, _ticks()
    if before is not None and after is not None and seconds > 0:
        others = (after[0] - before[0]) - (after[1] - before[1])
        found.others = max(0.0, others / os.sysconf("SC_CLK_TCK") / seconds / (os.cpu_count() or 1))


def _ticks() -> tuple[int, int] | None:
    """(busy ticks of the machine, busy ticks of this process)."""
    try:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        words = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, ValueError):
        return None
    return sum(fields[:3]) + sum(fields[5:8]), int(words[11]) + int(words[12])


def memory_bytes() -> int:
    """The machine's memory, or what its control group allows if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and 0 < int(text) < total:
            return int(text)
    return total


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
