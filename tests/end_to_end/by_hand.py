"""A ring as people start it over several machines, here over loopback: `ropeway run` and a `ropeway stage` a rank."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from end_to_end.processes import Process, Yard
from ropeway.launch.keys import write_key
from ropeway.transport import tcp

LONG = ("--max-tokens", "25000", "--context", "32000")
"""Flags for a reply that lasts longer than any test."""


@contextlib.contextmanager
def free_addresses(count: int) -> Iterator[tuple[str, ...]]:
    """Addresses on loopback whose ports the system keeps from others meanwhile, where it can."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
        addresses = tuple(map(tcp.listening_address, sockets))
        if sys.platform != "linux":  # where an address that is bound cannot be bound again
            for sock in sockets:
                sock.close()
        yield addresses
    finally:
        for sock in sockets:
            sock.close()


class HandRing:
    """The parts of a ring of `world` ranks, started one by one: `ranks` are its processes."""

    def __init__(self, yard: Yard, model: str, addresses: tuple[str, ...], name: str = "") -> None:
        self.yard = yard
        self.model = model
        self.addresses = addresses
        self.name = name
        self.key = yard.directory / f"{name or 'ring'}-{addresses[0].rpartition(':')[2]}.key"
        if not self.key.exists():
            write_key(self.key)
        self.ranks: dict[int, Process] = {}

    @property
    def world(self) -> int:
        return len(self.addresses)

    def flags(self, key: Path | None = None) -> tuple[str, ...]:
        """What says where the ring is."""
        # One thread a rank: threads that spin while they wait for each other, of ranks that share cores, take forever.
        return "--ring", ",".join(self.addresses), "--key", str(key or self.key), "--threads", "1"

    def run(self, *more: str, prelude: str = "", **environment: str) -> Process:
        """Start rank 0 with its prompt; the Python text `prelude` runs first in its process."""
        args = ("run", self.model, "hello", *self.flags(), *more)
        self.ranks[0] = self.yard.ropeway(*args, name=f"{self.name}rank0", prelude=prelude, **environment)
        return self.ranks[0]

    def stage(
        self,
        rank: int,
        *more: str,
        model: str = "",
        key: Path | None = None,
        prelude: str = "",
        **environment: str,
    ) -> Process:
        """Start another rank."""
        args = ("stage", model or self.model, "--rank", str(rank), *self.flags(key), *more)
        self.ranks[rank] = self.yard.ropeway(*args, name=f"{self.name}rank{rank}", prelude=prelude, **environment)
        return self.ranks[rank]

    def start(self, *more: str, preludes: Mapping[int, str] | None = None) -> None:
        """Start every rank, with `more` flags and some of them with a prelude, for a long reply."""
        preludes = preludes or {}
        self.run(*LONG, *more, prelude=preludes.get(0, ""))
        for rank in range(1, self.world):
            self.stage(rank, "--context", "32000", *more, prelude=preludes.get(rank, ""))

    def stream(self, *more: str) -> None:
        """Start all, and wait until a long reply has begun to come."""
        self.start(*more)
        self.ranks[0].until(lambda rank0: len(rank0.out) > 20)

    def said(self) -> str:
        """All that all ranks wrote."""
        return "\n".join(process.said() for process in self.ranks.values())
