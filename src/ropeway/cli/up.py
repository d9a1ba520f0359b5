"""`ropeway up` and `ropeway node TICKET`: be a node of a cluster, the first one or another, until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from ropeway.cli import flags
from ropeway.cluster.home import default_home
from ropeway.cluster.settings import DEFAULT_RELAYS, AgentSettings
from ropeway.cluster.ticket import LONGEST, Ticket, is_ticket, picture

Label = Annotated[str, typer.Option("--label", help="This node's name for people; the host's unless given.")]
Bind = Annotated[
    str,
    typer.Option(
        "--bind", metavar="IP:PORT,...", help="Listen here (UDP), one an address family; else on every interface."
    ),
]
Relays = Annotated[
    str,
    typer.Option(
        "--relays",
        metavar="default|none|URL,...",
        help="Relays that help two nodes behind routers to meet: n0's, none, or your own.",
    ),
]
Wan = Annotated[bool, typer.Option("--wan", help="Nodes are far apart: wait longer before one is given up.")]
Memory = Annotated[
    int, typer.Option("--memory-mb", min=0, help="Most memory for stages here; 0: most of what is free.")
]


def up(
    home: flags.HomeOption = None,
    label: Label = "",
    bind: Bind = "",
    relays: Relays = DEFAULT_RELAYS,
    wan: Wan = False,
    memory_mb: Memory = 0,
    qr: Annotated[bool, typer.Option("--qr/--no-qr", help="Draw the ticket as a QR code as well.")] = True,
) -> None:
    """Begin a cluster, or go back into the one of last time; prints the ticket that brings other nodes in.

    Whoever has the ticket is in: it holds the cluster's key.
    """
    with flags.people(guarded=False):
        settings = AgentSettings(str(home or default_home()), "", True, label, _split(bind), relays, wan, memory_mb)
        _be_a_node(settings, show=True, qr=qr)


def node(
    ticket: Annotated[
        str,
        typer.Argument(
            metavar="[TICKET|FILE|-]",
            envvar="ROPEWAY_TICKET",
            help="What `ropeway up` printed, a file with it, or - for standard input; nothing: last time's cluster.",
        ),
    ] = "",
    home: flags.HomeOption = None,
    label: Label = "",
    bind: Bind = "",
    relays: Relays = DEFAULT_RELAYS,
    wan: Wan = False,
    memory_mb: Memory = 0,
) -> None:
    """Join a cluster, and run stages for it until told to stop."""
    with flags.people(guarded=False):
        directory = home or default_home()
        if ticket in sys.argv and is_ticket(ticket):
            _start_without(ticket)
        settings = AgentSettings(
            str(directory), _read_ticket(ticket), False, label, _split(bind), relays, wan, memory_mb
        )
        _be_a_node(settings, show=False, qr=False)


def _be_a_node(settings: AgentSettings, *, show: bool, qr: bool) -> None:
    from ropeway.cluster.agent import JoinFailed, NodeAgent

    logging.basicConfig(level=logging.INFO, format="ropeway: %(message)s", force=True)

    def is_up(agent: NodeAgent) -> None:
        typer.echo(f"ropeway: node {settings.name} ({agent.node[:8]}) is up", err=True)
        if show:
            text = agent.ticket().text()
            if qr and sys.stdout.isatty():
                typer.echo(picture(text))
            typer.echo(text)
            typer.echo("ropeway: on each other machine: ropeway node TICKET", err=True)

    async def live() -> None:
        agent = NodeAgent(settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, agent.stop)
        await agent.run(is_up)

    try:
        asyncio.run(live())
    except (JoinFailed, OSError) as error:
        raise flags.fail(str(error), flags.EXIT_FAILED) from error


def _read_ticket(ticket: str) -> str:
    """The ticket itself. Raises ValueError."""
    if not ticket or is_ticket(ticket):
        return ticket
    try:
        text = _paste() if ticket == "-" else Path(ticket).read_text()
    except OSError as error:
        raise ValueError(f"ticket: neither a ticket nor a file that can be read ({error.strerror})") from None
    if not text.strip():
        raise ValueError(f"ticket: there is none in {'standard input' if ticket == '-' else ticket}")
    return text


def _paste() -> str:
    """A ticket from standard input, where a terminal or a mail may have broken it into lines; an empty one ends it."""
    text = ""
    while len(text) <= LONGEST and (line := sys.stdin.readline()).strip():
        text += line
        with contextlib.suppress(ValueError):
            Ticket.parse(text)
            break
        if sys.stdin.isatty():
            typer.echo("ropeway: that is not all of a ticket; paste the rest, or press Enter", err=True)
    return text


def _start_without(ticket: str) -> None:
    """Start this command anew with the ticket in its environment: every user can read a list of arguments."""
    Ticket.parse(ticket)
    rest = [argument for argument in sys.argv[1:] if argument != ticket]
    environment = {**os.environ, "ROPEWAY_TICKET": ticket}
    os.execve(sys.executable, [sys.executable, "-m", "ropeway", *rest], environment)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
