"""A Ray cluster of several hosts on one machine, each with an address of its own, and `ropeway serve --on ray` on it.

Only inside a namespace of its own (`namespaces.pytest_in_namespace`).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.asking import FLAGS, PORT, Server
from cluster.hosts import Host, Village
from end_to_end.processes import Process, Seen, processes, wait_until

GCS_PORT = 6379
PATIENCE_S = 150
"""Ray takes seconds of computing to start a node, and more where other work is going on."""
KEY = "sk-of-the-client-0123456789"


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank's process on a host. `ring` are its ring's addresses."""

    seen: Seen
    host: Host
    rank: int
    ring: str


class RayVillage(Village):
    """Hosts with a Ray node each."""

    def __init__(self, directory: Path, model: str, cpus: tuple[int, ...] = (1, 1, 1, 1)) -> None:
        super().__init__(directory, len(cpus), model)
        self._cpus = cpus
        self.scratch = Path(tempfile.mkdtemp(prefix="ray", dir=tempfile.gettempdir()))
        self.nodes: dict[str, Process] = {}
        for host in self.hosts:
            host.hide(self.scratch)
        for host in self.hosts:
            self.start_node(host)
        for host in self.hosts:
            self.up(host)

    def environment(self) -> dict[str, str]:
        """What Ray goes by on every host."""
        return {
            "RAY_TMPDIR": str(self.scratch),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_raylet_start_wait_time_s": str(PATIENCE_S),
        }

    def start_node(self, host: Host) -> None:
        """Have a host join the cluster; the first one is its head."""
        first = self.hosts[0]
        role = ["--head", "--port", str(GCS_PORT), "--include-dashboard", "false", "--no-monitor"]
        if host is not first:
            role = ["--address", f"{first.address}:{GCS_PORT}"]
        room = ("--num-cpus", str(self._cpus[self.hosts.index(host)]), "--object-store-memory", str(80 << 20))
        where = ("--node-ip-address", host.address)
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *where, *room, *role]
        self.nodes[host.name] = self.yard.start(list(host.command(*command)), f"{host.name}-ray", **self.environment())

    def up(self, host: Host) -> None:
        """Wait until a host's node is up."""
        self.nodes[host.name].until(lambda process: "Ray runtime started" in process.out, PATIENCE_S)

    def on(self, host: Host) -> list[Seen]:
        """What runs on a host, but for what holds its namespace."""
        space = os.readlink(f"/proc/{host.pid}/ns/net")
        found = []
        for seen in processes():
            with contextlib.suppress(OSError):
                if seen.pid != host.pid and os.readlink(f"/proc/{seen.pid}/ns/net") == space:
                    found.append(seen)
        return found

    def ranks(self) -> list[Rank]:
        """Every rank that runs anywhere."""
        found = []
        for host in self.hosts:
            for seen in self.on(host):
                words = " ".join(seen.args)
                ring = re.search(r" --ring (\S+)", words)
                if ring and seen.state != "Z" and "ropeway.launch.tether" not in words:
                    number = re.search(r" --rank (\d+)", words)
                    found.append(Rank(seen, host, int(number[1]) if number else 0, ring[1]))
        return found

    def kill(self, host: Host, *, only: str = "") -> None:
        """End a host's processes all at once; with `only`, those whose command line has that."""
        for seen in self.on(host):
            if only in " ".join(seen.args):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(seen.pid, signal.SIGKILL)

    def logs(self) -> Iterator[tuple[Host, Path]]:
        """All that Ray has written down on any host."""
        for host in self.hosts:
            for path in Path(f"/proc/{host.pid}/root{self.scratch}").rglob("*"):
                if path.is_file():
                    yield host, path

    def wait_for_none(self) -> None:
        """Wait until no rank runs and none listens any more."""
        wait_until(lambda: not self.ranks(), PATIENCE_S, lambda: str(self.ranks()))


class RayServer(Server):
    """`ropeway serve MODEL --on ray` on the first host: two replicas of two ranks, behind a key."""

    key = KEY

    def __init__(self, village: RayVillage, *more: str) -> None:
        self.village = village
        keys = village.yard.directory / "keys"
        keys.write_text(f"{KEY}\n")
        self.host = village.hosts[0]
        self.port = PORT
        flags = [*FLAGS, "--on", "ray", "--replicas", "2", "--stages", "2", "--port", str(PORT)]
        flags += ["--api-key", str(keys), "--drain", "2", *more]
        command = self.host.command(sys.executable, "-m", "ropeway", "serve", village.model, *flags)
        self.process = village.yard.start(list(command), "serve", **village.environment())
        self.process.until(lambda process: "http://" in process.err, PATIENCE_S)

    def replicas(self) -> list[str]:
        """Those that are ready."""
        answer = self.ask("GET", "/ready")
        return list(answer.body.get("replicas", []))

    def wait_for(self, count: int) -> None:
        """Wait until so many replicas are ready."""
        wait_until(lambda: len(self.replicas()) == count, PATIENCE_S, self.process.said)
