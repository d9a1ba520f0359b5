"""Processes that a test starts, watches, signals and always ends: their output in files, the moment of their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
LIMIT_S = 60.0
"""For whatever is not measured: starting up beside other work takes its time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of the system's list of processes."""

    pid: int
    parent: int
    state: str
    args: tuple[str, ...]


class Process:
    """A command that runs; `out` and `err` are what it has written so far."""

    def __init__(self, command: list[str], directory: Path, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self._out, self._err = directory / f"{name}.out", directory / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=os.environ | environment
            )
        self.pid = self._process.pid
        self.ended_at = 0.0
        """When it ended (time.monotonic)."""
        self._over = threading.Event()
        threading.Thread(target=self._wait, name=f"waits for {name}", daemon=True).start()

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return not self._over.is_set()

    def signal(self, number: signal.Signals) -> float:
        """Send it a signal; gives the time."""
        now = time.monotonic()
        self._process.send_signal(number)
        return now

    def status(self, limit_s: float = LIMIT_S) -> int:
        """Its exit status, once it has ended by itself; minus the signal that killed it."""
        assert self._over.wait(limit_s), f"{self.name} has not ended within {limit_s:g} s\n{self.said()}"
        return self._process.returncode

    def until(self, true: Callable[[Process], bool], limit_s: float = LIMIT_S) -> None:
        """Wait until something holds of it, while it runs."""
        wait_until(lambda: true(self) or not self.running, limit_s, self.said)
        assert true(self), f"{self.name} ended first, with {self._process.returncode}\n{self.said()}"

    def said(self) -> str:
        """All it wrote, for the message of a test that fails."""
        return f"--- {self.name} out\n{self.out[-2000:]}\n--- {self.name} err\n{self.err[-4000:]}"

    def end(self) -> None:
        """End it, however it is, and its children."""
        family = [seen.pid for seen in children(self.pid)]
        if self.running:
            self._process.kill()
        self._over.wait(LIMIT_S)
        for pid in family:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)

    def _wait(self) -> None:
        self._process.wait()
        self.ended_at = time.monotonic()
        self._over.set()


class Yard:
    """Starts processes, and ends them all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[Process] = []

    def start(self, command: list[str], name: str = "", **environment: str) -> Process:
        """Start a command."""
        name = f"{len(self._started)}-{name or 'process'}"
        process = Process(command, self.directory, name, environment)
        self._started.append(process)
        return process

    def ropeway(self, *args: str, name: str = "", prelude: str = "", **environment: str) -> Process:
        """Start `ropeway ARGS`; the Python text `prelude` runs first in its process."""
        how = ["-c", f"{prelude}\nfrom ropeway.cli import main\nmain()"] if prelude else ["-m", "ropeway"]
        return self.start([sys.executable, *how, *args], name or args[0], **environment)

    def end(self) -> None:
        """End everything."""
        for process in self._started:
            process.end()


def wait_until(true: Callable[[], bool], limit_s: float = LIMIT_S, said: Callable[[], str] = str) -> None:
    """Wait, with a deadline, for something that another process does."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s\n{said()}"
        time.sleep(0.02)


def children(pid: int) -> list[Seen]:
    """The living child processes of `pid`, oldest first."""
    return sorted((seen for seen in processes() if seen.parent == pid and seen.state != "Z"), key=lambda seen: seen.pid)


def child_of_rank(process: Process, rank: int) -> int:
    """The process id of a local rank."""
    found = [c.pid for c in children(process.pid) if c.args[-2:] == ("ropeway.launch.child", str(rank))]
    assert len(found) == 1, children(process.pid)
    return found[0]


def kill(pid: int, number: signal.Signals) -> None:
    """Signal a process that a test's own process has started."""
    os.kill(pid, number)


def is_alive(pid: int) -> bool:
    """Whether `pid` runs (or is stopped); one that has ended and waits to be collected does not."""
    if PROC.exists():
        seen = _seen(PROC / str(pid))
        return seen is not None and seen.state != "Z"
    return any(seen.pid == pid and seen.state != "Z" for seen in processes())


def processes() -> list[Seen]:
    """Everything that the system runs."""
    if not PROC.exists():
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
        )
        rows = [line.split() for line in listed.stdout.splitlines()]
        return [Seen(int(row[0]), int(row[1]), row[2][0], tuple(row[3:])) for row in rows]
    return [seen for entry in PROC.iterdir() if entry.name.isdigit() and (seen := _seen(entry))]


def _seen(entry: Path) -> Seen | None:
    try:
        # pid (name) state parent ...; the name may hold anything.
        state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
        args = (entry / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
    except OSError:
        return None  # it has ended meanwhile
    return Seen(int(entry.name), int(parent), state, tuple(args))
