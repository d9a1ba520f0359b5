"""What the benches share: pinned cores, and windows in which the machine was ours."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ropeway.launch.placement import Options
from ropeway.launch.placing import place_options

QUIET_SHARE = float(os.environ.get("BENCH_OTHERS", "0.05"))
"""A window counts as ours when other processes had at most this share of the machine's cores in it. Where the bench has
the processors first (`chrt -r 5`), others fill only what it leaves idle, and BENCH_OTHERS=1 counts every window."""


@dataclass(slots=True)
class Window:
    """A stretch of time and how much of the machine others had in it (Linux; elsewhere unknown: None)."""

    seconds: float = 0.0
    other_share: float | None = None

    @property
    def quiet(self) -> bool:
        """Others left the machine to us, as far as can be told."""
        return self.other_share is None or self.other_share <= QUIET_SHARE


def _ticks(pids: Sequence[int]) -> tuple[int, int] | None:
    """(busy ticks of the machine, busy ticks of `pids`), from /proc."""
    try:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        busy = sum(fields[:3]) + sum(fields[5:8])
        ours = 0
        for pid in pids:
            words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ours += int(words[11]) + int(words[12])
    except (OSError, ValueError):
        return None
    return busy, ours


@contextmanager
def window(pids: Sequence[int]) -> Iterator[Window]:
    """Watch a stretch of time; `pids` are ours (this process among them)."""
    found = Window()
    before, started = _ticks(pids), time.perf_counter()
    yield found
    found.seconds = time.perf_counter() - started
    after = _ticks(pids)
    if before is not None and after is not None:
        others = (after[0] - before[0]) - (after[1] - before[1])
        hertz = os.sysconf("SC_CLK_TCK")
        found.other_share = max(0.0, others / hertz / found.seconds / (os.cpu_count() or 1))


@dataclass(slots=True)
class Pairs:
    """Two things measured in turn; a pair counts only where the machine was ours in both halves."""

    a: list[float] = field(default_factory=list)
    b: list[float] = field(default_factory=list)
    thrown: int = 0

    def add(self, a: float, b: float, *windows: Window) -> None:
        """Take in a pair, or throw it away."""
        if all(one.quiet for one in windows):
            self.a.append(a)
            self.b.append(b)
        else:
            self.thrown += 1

    @property
    def ratios(self) -> list[float]:
        """a / b, pair by pair."""
        return [a / b for a, b in zip(self.a, self.b, strict=True)]


CUTS_HELP = "first layer of each later stage; `place` has ropeway calibrate this machine and choose; even unless given"


def cut(options: Options, words: str, goal: str) -> Options:
    """The options with the cuts that `--cuts` says: numbers, `place` for the best ones for the goal, or none: even."""
    if words == "place":
        return place_options(options, "local", goal)[0]
    return replace(options, cuts=tuple(map(int, words.split(",")))) if words else options


def pin_ring() -> list[int]:
    """Keep rank 0 (this process) and the ranks that it started on a core each; the process ids, rank 0's first."""
    found = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False)
    running = [int(pid) for pid in found.stdout.split()]
    pids = [os.getpid(), *(pid for pid in running if Path(f"/proc/{pid}").exists())]
    if hasattr(os, "sched_setaffinity"):
        for rank, pid in enumerate(pids):
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {rank % (os.cpu_count() or 1)})
    return pids


def machine() -> str:
    """The machine in words."""
    name = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{os.cpu_count()} cores, {name}"
