"""What an agent answers of the cluster itself: who is there, names, and messages to a name."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ropeway.cluster.membership import Membership
from ropeway.cluster.messages import decode_message
from ropeway.cluster.swim import Member
from ropeway.transport.iroh.services import Refused, Service
from ropeway.transport.iroh.streams import Lines, StreamEnded
from ropeway.transport.lines import LineError

DRAINING: Final = "draining-"
"""A node that is being drained registers this name, with the beginning of its id behind it."""
SHORTEST: Final = 4
"""Digits of an id that name a node."""


def draining_name(node: str) -> str:
    """The name that says that a node is being drained."""
    return DRAINING + node[:16]


class Directory:
    """Members and names, and the programs here that hold names. For the event loop's thread."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._swim = membership.swim
        self._held: dict[str, Lines] = {}

    def services(self) -> dict[str, Service]:
        """What it answers."""
        return {"members": self._members, "names": self._names, "listen": self._listen, "message": self._message}

    def resolve(self, called: str) -> str:
        """The id of what a program calls a node: an id, a name, a label, or the beginning of an id. Raises Refused."""
        members = {member.id.hex(): member for member in self._swim.members()}
        if called in members or len(called) == 64:
            return called
        entry = self._swim.resolve(called)
        if entry is not None:
            return entry.node.hex()
        found = [node for node, member in members.items() if member.label == called and member.state.living]
        if not found and len(called) >= SHORTEST:
            found = [node for node in members if node.startswith(called)]
        if len(found) != 1:
            raise Refused(
                f"{'several nodes are' if found else 'no node, and nobody with a name, is'} called {called!r}"
            )
        return found[0]

    def view(self, member: Member) -> dict[str, Any]:
        """A member as programs see it."""
        node = member.id.hex()
        return {
            "node": node,
            "label": member.label,
            "state": member.state.label,
            "draining": self.is_draining(node),
            "here": member.id == self._swim.id,
            "address": member.address.decode(errors="replace"),
        }

    def is_draining(self, node: str) -> bool:
        """Whether a node is to be given nothing new."""
        entry = self._swim.resolve(draining_name(node))
        return entry is not None and entry.node.hex() == node

    async def _members(self, _first: dict[str, Any], lines: Lines, _node: str) -> None:
        views = [self.view(member) for member in self._swim.members()]
        views.sort(key=lambda view: (not view["here"], view["label"], view["node"]))
        await lines.write_line({"members": views})

    async def _names(self, _first: dict[str, Any], lines: Lines, _node: str) -> None:
        await lines.write_line({"names": {name: entry.node.hex() for name, entry in self._swim.names().items()}})

    async def _listen(self, first: dict[str, Any], lines: Lines, _node: str) -> None:
        """A program holds a name for as long as its stream lasts."""
        name = str(first.get("name", ""))
        if name in self._held:
            raise Refused(f"another program here has the name {name!r}")
        if name.startswith(DRAINING):
            raise Refused(f"names that begin with {DRAINING!r} are the agents' own")
        try:
            self._membership.register(name)
        except ValueError as error:
            raise Refused(str(error)) from None
        self._held[name] = lines
        try:
            await lines.write_line({"ok": True})
            while await lines.read(4096):
                pass
        finally:
            del self._held[name]
            self._membership.unregister(name)

    async def _message(self, first: dict[str, Any], lines: Lines, _node: str) -> None:
        """A message for whoever holds a name here."""
        name, message = str(first.get("name", "")), first.get("message")
        try:
            decode_message(message if isinstance(message, dict) else {})
        except ValueError as error:
            raise Refused(f"this is no message: {error}") from None
        there = self._held.get(name)
        if there is None:
            raise Refused(f"nobody here has the name {name!r}")
        assert isinstance(message, dict)
        try:
            await there.write_line(message)
        except (StreamEnded, LineError) as error:
            raise Refused(f"whoever had the name {name!r} has gone: {error}") from None
        await lines.write_line({"ok": True})


async def until_end(lines: Lines) -> None:
    """Wait until the other side has ended its half, whatever it says meanwhile."""
    try:
        while await lines.read(4096):
            pass
    except StreamEnded:
        return
    except asyncio.CancelledError:
        raise
