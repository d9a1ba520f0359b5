"""Hosts on one machine: network namespaces with addresses of their own, joined by a switch, with cables to pull.

Only inside a namespace of its own (`namespaces.pytest_in_namespace`), where it may make more of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster.far import FarSwitch, open_tap
from end_to_end.processes import Process, Yard

_NEW_NET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command: str) -> None:
    """Run a command to its end; it must do well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


class Host:
    """One host: its namespace is held by a process that does nothing."""

    def __init__(self, number: int) -> None:
        self.name = f"host{number}"
        self.address = f"10.77.0.{number + 1}"
        self._holder = subprocess.Popen(["unshare", "-n", "-m", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.write(b"\n")
        self._holder.stdin.flush()
        self._holder.stdout.readline()  # `cat` runs, so the namespace is there
        self.pid = self._holder.pid

    def command(self, *command: str) -> tuple[str, ...]:
        """A command that runs on this host."""
        return ("nsenter", "-t", str(self.pid), "-n", "-m", "--", *command)

    def hide(self, directory: Path, size: str = "50%") -> None:
        """Let this host have none of what lies in a directory, and room for so much in it."""
        run(*self.command("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory)))

    def plug(self, number: int) -> None:
        """Join it to the switch of this process's namespace."""
        here, there = f"port{number}", f"wire{number}"
        run("ip", "link", "add", "name", here, "type", "veth", "peer", "name", there)
        run("ip", "link", "set", there, "netns", str(self.pid), "name", "eth0")
        run("ip", "link", "set", here, "master", "switch", "up")
        self._port = here
        self._address()

    def _address(self) -> None:
        run(*self.command("ip", "link", "set", "lo", "up"))
        run(*self.command("ip", "address", "add", f"{self.address}/24", "dev", "eth0"))
        run(*self.command("ip", "link", "set", "eth0", "up"))

    def cable(self, state: str) -> None:
        """Pull its cable ("down") or put it back ("up")."""
        run("ip", "link", "set", self._port, state)

    def plug_far(self, switch: FarSwitch) -> None:
        """Join it to a switch that is far away."""
        with self._inside():
            switch.add(open_tap("eth0"))
        self._address()

    def connect(self, port: int, timeout_s: float) -> http.client.HTTPConnection:
        """A connection to a server on this host's lo."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        with self._inside():
            connection.sock = socket.create_connection(("127.0.0.1", port), timeout_s)
        return connection

    def ports(self) -> list[str]:
        """The sockets that listen here (TCP) or are bound (UDP), as the kernel lists them."""
        found = []
        for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
            rows = [line.split() for line in Path(f"/proc/{self.pid}/net/{table}").read_text().splitlines()[1:]]
            found += [f"{table} {row[1]}" for row in rows if row[3] == state]
        return found

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """This thread is on the host: sockets that it makes stay there."""
        with open("/proc/thread-self/ns/net") as ours, open(f"/proc/{self.pid}/ns/net") as theirs:
            _enter(theirs.fileno())
            try:
                yield
            finally:
                _enter(ours.fileno())

    def close(self) -> None:
        """Let the namespace go."""
        self._holder.communicate()


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _NEW_NET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Village:
    """Some hosts, each with a home for its node; what runs on them is ended with them.

    With `far`, seconds one way and the share of frames that are lost, they are far apart, and have no cables to pull.
    """

    def __init__(self, directory: Path, count: int, model: str, far: tuple[float, float] | None = None) -> None:
        run("ip", "link", "add", "name", "switch", "type", "bridge")
        run("ip", "link", "set", "switch", "up")
        self.model = model
        self.yard = Yard(directory)
        self.hosts = [Host(number) for number in range(count)]
        self._far = None if far is None else FarSwitch(*far)
        for number, host in enumerate(self.hosts):
            if self._far is None:
                host.plug(number)
            else:
                host.plug_far(self._far)
        if self._far is not None:
            self._far.start()
        self._homes = directory / "homes"
        self._homes.mkdir()

    def home(self, host: Host) -> Path:
        """The node's own directory."""
        return self._homes / host.name

    def cache(self, host: Host) -> Path:
        """The node's cache of weights."""
        return self._homes / f"{host.name}-cache"

    def ropeway(self, host: Host, *args: str, **environment: str) -> Process:
        """Start `ropeway ARGS` on a host."""
        command = [*host.command(sys.executable, "-m", "ropeway", *args, "--home", str(self.home(host)))]
        environment = {"ROPEWAY_CACHE": str(self.cache(host)), **environment}
        return self.yard.start(command, f"{host.name}-{args[0]}", **environment)

    def strangers(self, host: Host, ticket: str, member: str) -> Process:
        """Start `strangers.py` on a host."""
        command = host.command(sys.executable, "-m", "cluster.strangers", member)
        return self.yard.start([*command], f"{host.name}-strangers", ROPEWAY_TICKET=ticket)

    def node(self, host: Host, ticket: str = "", *more: str) -> Process:
        """Start a node: the first one without a ticket, else by it."""
        flags = ("--label", host.name, "--relays", "none", "--bind", f"{host.address}:0", *more)
        if not ticket:
            return self.ropeway(host, "up", *flags)
        return self.ropeway(host, "node", *flags, ROPEWAY_TICKET=ticket)

    def has(self, pid: int) -> bool:
        """Whether a process runs on one of the hosts."""
        try:
            where = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return False
        return where in {os.readlink(f"/proc/{host.pid}/ns/net") for host in self.hosts}

    def close(self) -> None:
        """End everything."""
        self.yard.end()
        for host in self.hosts:
            host.close()
        if self._far is not None:
            self._far.close()
        run("ip", "link", "delete", "switch")
