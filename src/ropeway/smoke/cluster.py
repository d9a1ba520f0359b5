"""What a run needs of a cluster, and the clusters that give it: `tcp` on this machine alone, `iroh` anywhere.

The calls are those of `cluster.client.Agent`; what a rank needs to be reached is added.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ropeway.cluster.client import Agent, MemberView
from ropeway.cluster.messages import Message, stage_name
from ropeway.cluster.process import running_agent
from ropeway.cluster.settings import DEFAULT_RELAYS, NO_RELAYS, AgentSettings
from ropeway.cluster.ticket import Ticket
from ropeway.smoke.hidden import for_children
from ropeway.smoke.loopback.link import TICKET, read_ticket

KINDS: Final = ("tcp", "iroh")


class Inbox(Protocol):
    """A registered name and the messages that come to it."""

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises TimeoutError, and AgentError once the cluster has gone."""
        ...

    def close(self) -> None:
        """Give the name up."""
        ...


class Cluster(Protocol):
    """A node's view of its cluster. Every call raises AgentError once the cluster is out of reach."""

    @property
    def node(self) -> str: ...
    def ticket(self) -> str:
        """What brings another node in; a secret."""
        ...

    def members(self) -> list[MemberView]:
        """Every node that is known, this one among them."""
        ...

    def names(self) -> dict[str, str]:
        """Every registered name and the node that has it."""
        ...

    def listen(self, name: str) -> Inbox:
        """Register a name, and take its messages."""
        ...

    def send(self, name: str, message: Message) -> None:
        """Send a message to whoever has `name`; it has been taken when this returns."""
        ...

    def rank_listener(self, ring: str, rank: int) -> socket.socket:
        """Where our rank listens; the caller closes it."""
        ...

    def rank_reach(self, ring: str) -> dict[str, Any]:
        """What a rank's process must be told to reach the others, as JSON; empty: plain TCP."""
        ...

    def rank_addresses(self, world: int) -> tuple[str, ...]:
        """Every rank's address, once every stage has its name. Raises KeyError where one has none."""
        ...


class AgentCluster:
    """A cluster over iroh, through an agent beside us."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.node = agent.node
        self.ticket = agent.ticket
        self.members = agent.members
        self.names = agent.names
        self.listen = agent.listen

    def send(self, name: str, message: Message) -> None:
        """As `Cluster`."""
        self._agent.send(name, message)

    def rank_listener(self, ring: str, rank: int) -> socket.socket:
        """As `Cluster`."""
        return self._agent.listener(ring, rank)

    def rank_reach(self, ring: str) -> dict[str, Any]:
        """As `Cluster`."""
        return {"switch": str(self._agent.running.switch), "ring": ring}

    def rank_addresses(self, world: int) -> tuple[str, ...]:
        """As `Cluster`: the node ids that have the names now, so that a name that moves does not move a rank."""
        names = self.names()
        return tuple(f"{names[stage_name(stage)]}:{stage}" for stage in range(world))


@dataclass(frozen=True, slots=True)
class Reach:
    """How nodes over iroh reach each other: `relays` as for AgentSettings, and the addresses to bind, empty for all."""

    relays: str = DEFAULT_RELAYS
    bind: tuple[str, ...] = ()


HERE: Final = Reach(NO_RELAYS, ("127.0.0.1:0", "[::1]:0"))
"""On this machine alone."""


@contextmanager
def open_cluster(kind: str, up_s: float, reach: Reach = HERE) -> Iterator[Cluster]:
    """The first node of a new cluster, for an orchestrator. Raises AgentError where it is not up within `up_s`."""
    if kind == "tcp":
        from ropeway.smoke.loopback.seed import Seed

        with Seed() as seed:
            yield seed
        return
    with _home() as home:
        settings = AgentSettings(
            home, first=True, label="orchestrator", bind=reach.bind, relays=reach.relays, wan=_far(reach)
        )
        with running_agent(settings, up_s, for_children(os.environ)) as agent:
            yield AgentCluster(agent)


@contextmanager
def join_cluster(ticket: str, label: str, up_s: float, reach: Reach = HERE) -> Iterator[Cluster]:
    """A node that joins by a ticket. Raises AgentError, or ValueError for something that is no ticket."""
    if ticket.startswith(TICKET):
        from ropeway.smoke.loopback.member import join

        with join(ticket, label, up_s) as member:
            yield member
        return
    with _home() as home:
        settings = AgentSettings(home, ticket, label=label, bind=reach.bind, relays=reach.relays, wan=_far(reach))
        with running_agent(settings, up_s, for_children(os.environ)) as agent:
            yield AgentCluster(agent)


def check_ticket(ticket: str) -> None:
    """Refuse, with ValueError that does not hold it, what is no ticket of either kind of cluster."""
    if ticket.startswith(TICKET):
        read_ticket(ticket)
    else:
        Ticket.parse(ticket)


def ring_key(ticket: str) -> bytes:
    """The key that the ranks share: every node was given the ticket, and it is a secret."""
    return hmac.new(ticket.encode(), b"ropeway smoke ring 1", hashlib.sha256).digest()


def ring_id(label: str) -> str:
    """A ring's name for one run, 12 letters and digits."""
    return hashlib.sha256(label.encode()).hexdigest()[:12]


def _far(reach: Reach) -> bool:
    """Whether membership has to wait for far nodes."""
    return reach.relays != NO_RELAYS


@contextmanager
def _home() -> Iterator[str]:
    """A node's directory for as long as the run lasts: its identity is of no use afterwards."""
    with tempfile.TemporaryDirectory(prefix="ropeway-") as directory:
        yield directory
