"""The node agent: one process a machine that holds the connections, membership, names, and the ranks that run here.

`python -m ropeway.cluster.agent` is an agent as a child: it reads its settings as one JSON line from standard input,
says on standard output how it went, and takes the end of its standard input for its parent's death.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ropeway.cluster.home import SOCKETS, Home, Running, own_secret, read_secret, write_secret
from ropeway.cluster.membership import KeySeal, Membership
from ropeway.cluster.node_facts import facts_service
from ropeway.cluster.ranks import Ranks
from ropeway.cluster.services import Directory, draining_name
from ropeway.cluster.settings import AgentSettings
from ropeway.cluster.swim import (
    LAN,
    WAN,
    Contact,
    Died,
    Event,
    Joined,
    Left,
    Outlived,
    Recovered,
    Refused,
    Suspected,
    Updated,
)
from ropeway.cluster.ticket import Ticket
from ropeway.cluster.weights import Shelves
from ropeway.transport.iroh.binding import load
from ropeway.transport.iroh.endpoint import Endpoint, NodeAddress, Unreachable
from ropeway.transport.iroh.proof import NotProved
from ropeway.transport.iroh.services import Service, ring_service
from ropeway.transport.iroh.streams import Lines
from ropeway.transport.iroh.switchboard import Switchboard

log = logging.getLogger("ropeway.cluster")

JOIN_S: Final = 30.0
LOCAL: Final = frozenset({"self", "ticket", "members", "names", "listen", "shelve"})
"""Services for programs on this machine only."""


class JoinFailed(Exception):
    """The node cannot come in; the text says why."""


class NodeAgent:
    """One node; `run` is its whole life."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._home = Home(Path(settings.home))
        self._stop = asyncio.Event()
        self._refused = ""
        self._joined = asyncio.Event()

    def stop(self) -> None:
        """End in good order. For the event loop's thread."""
        self._stop.set()

    async def run(self, up: Callable[[NodeAgent], None]) -> None:
        """Be a node until `stop`; `up` is called once it is in its cluster. Raises JoinFailed, ValueError, OSError."""
        self._home.make()
        with self._home.held():
            await self._live(up)

    async def _live(self, up: Callable[[NodeAgent], None]) -> None:
        settings, home = self._settings, self._home
        ticket = self._find_cluster()
        self._key = read_secret(home.cluster_key) if ticket is None else ticket.key
        secret = own_secret(home.node_key)
        endpoint = await Endpoint.bind(secret, settings.bind, settings.relays)
        sockets = Path(tempfile.mkdtemp(prefix=SOCKETS))
        self._running = running = Running(os.getpid(), sockets)
        self._ranks = Ranks(running.ring, running.switch)
        self._board = board = Switchboard(
            endpoint,
            self._key,
            settings.name,
            self._services(),
            local=LOCAL,
            resolve=lambda called: self._directory.resolve(called),
            address=lambda node: self._address(node, ticket),
            on_packet=lambda node, packet: self._membership.received(node, packet),
            on_lost=lambda peer, why: log.info("the connection to %s (%s) has ended: %s", *who(peer), why),
        )
        timing = WAN if settings.wan else LAN
        self._membership = Membership(
            board, self._key, settings.name, timing, KeySeal(load(), secret), on_event=self._changed
        )
        self._directory = Directory(self._membership)
        board.services.update({**self._directory.services(), **Shelves().services()})
        timer = asyncio.ensure_future(self._membership.run())
        try:
            board.start(running.switch)
            if ticket is not None:
                await self._join(ticket)
                write_secret(home.cluster_key, self._key.hex())  # not before: a wrong ticket displaces no key
            else:
                self._return()
            home.write_running(running)
            up(self)
            await self._stop.wait()
            await self._ranks.close()
            await self._membership.leave()
        finally:
            timer.cancel()
            await self._ranks.close()
            home.forget_running()
            await board.close()
            shutil.rmtree(sockets, ignore_errors=True)

    def ticket(self) -> Ticket:
        """What brings another node in, by us."""
        return Ticket(self._key, self._board.node, self._board.endpoint.address())

    @property
    def node(self) -> str:
        """Our id."""
        return self._board.node

    def _find_cluster(self) -> Ticket | None:
        """The cluster that we belong to: a new one, that of a ticket, or the one of last time. Raises ValueError."""
        settings, home = self._settings, self._home
        if settings.ticket:
            return Ticket.parse(settings.ticket)
        if settings.first:
            own_secret(home.cluster_key)
            return None
        if not home.cluster_key.exists():
            raise ValueError(f"ticket: {home.directory} knows no cluster yet; give a ticket (ropeway up prints one)")
        return None

    async def _join(self, ticket: Ticket) -> None:
        """Reach the node of the ticket and come in. Raises JoinFailed."""
        if ticket.node == self.node:
            return
        try:
            await self._board.peer(ticket.node)
        except NotProved as error:
            raise JoinFailed(f"we refuse the ticket's node: {error}") from None
        except Unreachable as error:
            if "wrong_" in str(error):
                raise JoinFailed(f"the ticket's node refuses us: {error}") from None
            log.warning("%s; trying on", error)
        self._membership.join([Contact(bytes.fromhex(ticket.node), ticket.address.text().encode())])
        try:
            await asyncio.wait_for(self._joined.wait(), JOIN_S)
        except TimeoutError:
            raise JoinFailed(
                f"node {ticket.node[:8]} did not let us in within {JOIN_S:g} s; is its agent up, and can it be reached?"
            ) from None
        if self._refused:
            raise JoinFailed(self._refused)

    def _return(self) -> None:
        """Look for the nodes of last time, for as long as it takes; there may be none yet."""
        contacts = self._home.read_contacts()
        self._membership.join([Contact(bytes.fromhex(node), text.encode()) for node, text in contacts.items()])

    def _remember(self) -> None:
        """Keep the addresses of the others, for the next start."""
        others = [member for member in self._membership.swim.living() if member.id.hex() != self.node]
        if others:
            with contextlib.suppress(OSError):  # a full disk must not end a node
                self._home.write_contacts({one.id.hex(): one.address.decode(errors="replace") for one in others})

    def _address(self, node: str, ticket: Ticket | None) -> NodeAddress | None:
        known = self._membership.address(node)
        if known is None and ticket is not None and node == ticket.node:
            return ticket.address
        if known is None and (text := self._home.read_contacts().get(node)) is not None:
            with contextlib.suppress(ValueError):
                return NodeAddress.parse(text)
        return known

    def _changed(self, event: Event) -> None:
        match event:
            case Joined(member) if member.id.hex() != self._board.node:
                log.info("%s (%s) is there", member.label, member.id.hex()[:8])
                self._joined.set()
                self._remember()
            case Updated():
                self._remember()
            case Suspected(member) | Recovered(member) | Died(member) | Left(member):
                log.info("%s (%s): %s", member.label, member.id.hex()[:8], type(event).__name__.lower())
            case Refused(by, fault):
                self._refused = f"node {by.hex()[:8]} refuses us: {fault.label}"
                if fault.label == "label_taken":
                    self._refused += f": another node is called {self._settings.name!r}; give this one a --label"
                self._joined.set()
            case Outlived():
                log.error("another process has the key of this node (%s): each node needs its own", self._home.node_key)
            case _:
                pass

    # Services of the agent itself

    def _services(self) -> dict[str, Service]:
        return {
            "self": self._self,
            "ticket": self._ticket,
            "facts": facts_service(lambda: self._ranks.draining, self._settings.memory_mb),
            "run": self._ranks.run,
            "ring": ring_service(self._running.ring),
            "packet": self._packet,
            "drain": self._drain,
            "leave": self._leave,
        }

    async def _self(self, _first: dict[str, Any], lines: Lines, _node: str) -> None:
        await lines.write_line({"node": self.node, "label": self._settings.name, "pid": os.getpid()})

    async def _ticket(self, _first: dict[str, Any], lines: Lines, _node: str) -> None:
        await lines.write_line({"ticket": self.ticket().text()})

    async def _packet(self, first: dict[str, Any], _lines: Lines, node: str) -> None:
        """A datagram that was too large for one."""
        try:
            packet = bytes.fromhex(str(first.get("hex", "")))
        except ValueError:
            return
        self._membership.received(node, packet)

    async def _drain(self, _first: dict[str, Any], lines: Lines, node: str) -> None:
        log.info("drained by node %s: no new ranks here", node[:8])
        self._membership.register(draining_name(self.node))
        await lines.write_line({"ok": True})
        await self._ranks.drain()

    async def _leave(self, _first: dict[str, Any], lines: Lines, node: str) -> None:
        log.info("told to leave by node %s", node[:8])
        await lines.write_line({"ok": True})
        self.stop()


def who(peer: Any) -> tuple[str, str]:
    """A peer's label and the beginning of its id, for logs."""
    return peer.greeting.label, peer.node[:8]


async def as_child(settings: AgentSettings) -> int:
    """An agent that ends with its standard input; its exit status."""
    agent = NodeAgent(settings)
    loop = asyncio.get_running_loop()

    def hear_parent() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            agent.stop()

    loop.add_reader(0, hear_parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, agent.stop)
    try:
        await agent.run(lambda node: _say({"ready": True, "node": node.node}))
    except (JoinFailed, ValueError, OSError) as error:
        _say({"error": str(error)})
        return 1
    return 0


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Be an agent as a child process."""
    logging.basicConfig(level=logging.INFO, format="ropeway node: %(message)s")
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("settings: the parent closed the pipe before it had said anything")
        line += byte
    raise SystemExit(asyncio.run(as_child(AgentSettings.load(bytes(line)))))


if __name__ == "__main__":
    main()
