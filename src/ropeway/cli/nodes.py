"""`ropeway nodes`, `ropeway drain NODE` and `ropeway down`: look at a cluster, and take nodes out of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from ropeway.cli import flags
from ropeway.cluster.client import Agent, AgentError, MemberView
from ropeway.cluster.home import Home, default_home


def nodes(home: flags.HomeOption = None, as_json: flags.Json = False) -> None:
    """Show every node that the agent here knows of, and what each of them has."""
    with flags.people():
        agent = _agent(home)
        members = agent.members()
        rows = [(member, _facts(agent, member)) for member in members]
        names: dict[str, list[str]] = {}
        for name, node in agent.names().items():
            names.setdefault(node, []).append(name)
        if as_json:
            found = [{**asdict(m), "facts": facts, "names": names.get(m.node, [])} for m, facts in rows]
            typer.echo(json.dumps({"nodes": found}))
            return
        for member, facts in rows:
            state = f"{member.state}{', drained' if member.draining else ''}{' (here)' if member.here else ''}"
            memory = f"{facts['limit_bytes'] / 1e9:5.1f} GB, {facts['cores']} cores" if facts else ""
            held = ", ".join(name for name in names.get(member.node, []) if not name.startswith("draining-"))
            typer.echo(f"{member.label:20} {member.node[:8]}  {state:20} {memory:18} {held}".rstrip())


def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A label, or the beginning of an id.")],
    home: flags.HomeOption = None,
) -> None:
    """Give NODE no new stages, and let the rings that it is in be placed again without it."""
    with flags.people():
        try:
            _agent(home).call("drain", node)
        except AgentError as error:
            raise flags.fail(str(error), flags.EXIT_FAILED) from error
    typer.echo(f"{node}: drained; its rings are placed again as soon as running replies have ended")


def down(
    home: flags.HomeOption = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Every node of the cluster, this one last.")] = False,
) -> None:
    """End the agent here; its ranks end with it. Its directory stays, so that `ropeway node` brings it back."""
    with flags.people():
        agent = _agent(home)
        others = [member for member in agent.members() if not member.here and member.state in ("alive", "suspect")]
        failed = False
        for member in others if everywhere else []:
            try:
                agent.call("leave", member.node)
                typer.echo(f"{member.label}: down")
            except AgentError as error:
                failed = True
                typer.echo(f"{member.label}: {error}", err=True)
        try:
            agent.leave()
        except AgentError as error:
            raise flags.fail(str(error), flags.EXIT_FAILED) from error
    typer.echo("this node: down")
    if failed:
        raise typer.Exit(flags.EXIT_FAILED)


def _agent(home: flags.HomeOption) -> Agent:
    try:
        return Agent(Home(home or default_home()))
    except AgentError as error:
        raise flags.fail(str(error), flags.EXIT_FAILED) from error


def _facts(agent: Agent, member: MemberView) -> dict[str, Any]:
    if member.state != "alive":
        return {}
    try:
        return agent.call("facts", member.node, 2.0)
    except AgentError:
        return {}
