"""What the fake service rents out, what it is asked, and its moods."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY = "5ec2e7f00dfeed0123456789abcdef5ec2e7f00dfeed0123456789abcdef0000"
HERE = Path(__file__).parent
NODE = (sys.executable, "-m", "ropeway.cli.gpu_node")
STUB = (sys.executable, str(HERE / "stub_node.py"))
"""The same node with a rank that loads and answers without an engine."""
SLEEPER = (sys.executable, "-c", "import time; print('a container that does nothing', flush=True); time.sleep(600)")
BURST_S = 0.5
"""Creates closer together than this are too many."""
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, as a test sees it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def kind(self) -> str:
        """search, create, status, list, logs, destroy or fetch."""
        if self.path.startswith("/result/"):
            return "fetch"
        head = self.path.removeprefix("/api/v0/").partition("?")[0].strip("/").split("/")
        if head[0] == "bundles":
            return "search"
        if head[0] == "asks":
            return "create"
        if len(head) > 1 and head[1] == "request_logs":
            return "logs"
        if len(head) == 1:
            return "list"
        return {"DELETE": "destroy", "PUT": "stop"}.get(self.method, "status")


@dataclass(slots=True)
class Rented:
    """One instance. `how` is its fate: run, never, error, vanish."""

    id: int
    offer: dict[str, Any]
    body: dict[str, Any]
    how: str
    key: str
    log: Path
    process: subprocess.Popen[bytes] | None = None
    looks: int = 0
    stopped: bool = False

    @property
    def stage(self) -> int:
        return int(self.body["env"]["STAGE"])

    def said(self) -> str:
        """What its process has written."""
        with suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")
        return ""

    def status(self) -> tuple[str | None, str]:
        """actual_status and status_msg now; each look is one nearer to running."""
        self.looks += 1
        if self.how == "error":
            return "loading", "Error response from daemon: failed to create task: nvidia-container-cli"
        if self.stopped:
            return "stopped", "stopped by its own key"
        if self.process is not None and self.process.poll() is not None:
            return "exited", f"exited with {self.process.returncode}"
        if self.looks == 1:
            return None, ""
        if self.how == "never" or self.looks == 2:
            return "loading", "downloading image"
        return "running", "success, running"

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal everything that runs in it."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


@dataclass(slots=True)
class Moods:
    """What the service does next: one word a create or destroy, in order, then the last for ever.

    creates: ok, gone, busy (429), lost (rented, and no answer), swallowed (no answer, nothing rented), broken (500 and
    rented), page (200 and HTML, rented), refused, denied. destroys: stuck (says yes and does nothing) and what follows.
    All but creates: ok, busy, broken, page (200 and HTML), false (200, `success` false), missing (404 and HTML).
    """

    creates: deque[str] = field(default_factory=deque)
    destroys: deque[str] = field(default_factory=deque)
    self_destroys: deque[str] = field(default_factory=deque)
    searches: deque[str] = field(default_factory=deque)
    statuses: deque[str] = field(default_factory=deque)
    lists: deque[str] = field(default_factory=deque)
    instances: dict[int, str] = field(default_factory=dict)
    """The fate of a stage's instance; run by default."""
    commands: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """What a stage's instance runs."""
    command: tuple[str, ...] = STUB
    environment: dict[str, str] = field(default_factory=dict)
    container_key: bool = True
    dearer: float = 1.0
    """What an instance costs is this times what its offer said."""


def offer(number: int, **more: Any) -> dict[str, Any]:
    """One offer as the service shapes it; the cheaper the lower its number."""
    return {
        "id": 4100 + number,
        "machine_id": 90 + number,
        "gpu_name": "RTX 3060",
        "num_gpus": 1,
        "gpu_ram": 12288,
        "dph_total": round(0.05 + 0.01 * number, 4),
        "reliability2": 0.995,
        "verified": True,
        "verification": "verified",
        "rentable": True,
        "rented": False,
        "inet_down": 500.0,
        "cuda_max_good": 12.8,
        "direct_port_count": 0,
        "geolocation": "Sweden, SE",
    } | more
