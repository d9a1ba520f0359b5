"""What an agent answers of members, names and messages, with streams that are socket pairs and no network."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ropeway.cluster.membership import Membership
from ropeway.cluster.messages import InferenceRequest, encode_message
from ropeway.cluster.services import Directory, draining_name
from ropeway.cluster.swim import LAN, Statement, Swim, Unsealed
from ropeway.cluster.weights import Shelves
from ropeway.transport.iroh.services import Refused, Service
from ropeway.transport.iroh.streams import Lines, SocketStream

ME = bytes.fromhex("abcd" * 16)


class Alone(Membership):
    """The membership of a node that is alone."""

    def __init__(self) -> None:
        now = time.monotonic()
        self.swim = Swim(Statement(ME, 1, label="attic"), b"c" * 8, LAN, Random(1), now, Unsealed())

    def _settle(self) -> None:
        self.swim.outgoing()
        self.swim.events()


class Asked:
    """One stream to a service, from the program's end."""

    def __init__(self, service: Service, first: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        self.stream = SocketStream(ours)
        self.lines = Lines(self.stream)
        self._far = SocketStream(theirs)
        self.task = asyncio.ensure_future(self._serve(service, first, Lines(self._far)))

    async def _serve(self, service: Service, first: dict[str, Any], lines: Lines) -> None:
        try:
            await service(first, lines, ME.hex())
        finally:
            self._far.abandon()

    async def end(self) -> None:
        """The program ends."""
        self.stream.abandon()
        await self.task


async def refused(service: Service, first: dict[str, Any], words: str = ".") -> None:
    """The service says no."""
    asked = Asked(service, first)
    with pytest.raises(Refused, match=words):
        await asked.task
    asked.stream.abandon()


def play(scene: Callable[[Directory], Awaitable[None]]) -> None:
    """A scene with a directory of one node."""

    async def run() -> None:
        await scene(Directory(Alone()))

    asyncio.run(asyncio.wait_for(run(), 20))


def test_what_nodes_are_called() -> None:
    async def scene(directory: Directory) -> None:
        directory._membership.register("pp-entry")
        for called in (ME.hex(), "attic", "abcd", "abcdab", "pp-entry"):
            assert directory.resolve(called) == ME.hex()
        assert directory.resolve("ff" * 32) == "ff" * 32  # an id that is not known yet may still be dialled
        for called in ("", "abc", "cellar", "ffff"):
            with pytest.raises(Refused, match="is called"):
                directory.resolve(called)

    play(scene)


def test_members_and_draining() -> None:
    async def scene(directory: Directory) -> None:
        asked = Asked(directory.services()["members"], {})
        view = {"node": ME.hex(), "label": "attic", "state": "alive", "draining": False, "here": True, "address": ""}
        assert await asked.lines.read_line() == {"members": [view]}
        await asked.end()
        directory._membership.register(draining_name(ME.hex()))
        asked = Asked(directory.services()["members"], {})
        assert await asked.lines.read_line() == {"members": [{**view, "draining": True}]}
        await asked.end()

    play(scene)


def test_a_name_lasts_as_long_as_who_holds_it_and_takes_messages() -> None:
    async def scene(directory: Directory) -> None:
        services = directory.services()
        message = encode_message(InferenceRequest("me", "Say hello", 8))
        holder = Asked(services["listen"], {"name": "pp-entry"})
        assert await holder.lines.read_line() == {"ok": True}
        await refused(services["listen"], {"name": "pp-entry"}, "another program here")

        sender = Asked(services["message"], {"name": "pp-entry", "message": message})
        assert await sender.lines.read_line() == {"ok": True}
        await sender.end()
        assert await holder.lines.read_line() == json.loads(json.dumps(message))

        names = Asked(services["names"], {})
        assert await names.lines.read_line() == {"names": {"pp-entry": ME.hex()}}
        await names.end()
        await holder.end()
        names = Asked(services["names"], {})
        assert await names.lines.read_line() == {"names": {}}
        await names.end()
        await refused(services["message"], {"name": "pp-entry", "message": message}, "nobody here has the name")

    play(scene)


@pytest.mark.parametrize("name", ["", "x" * 200, "draining-abcd", "a\nb"])
def test_names_that_cannot_be_had(name: str) -> None:
    async def scene(directory: Directory) -> None:
        await refused(directory.services()["listen"], {"name": name})
        assert directory._swim.names() == {}

    play(scene)


@pytest.mark.parametrize("message", [None, [], {}, {"type": "Shell", "run": "ls"}])
def test_what_is_no_message(message: object) -> None:
    async def scene(directory: Directory) -> None:
        await refused(directory.services()["message"], {"name": "pp-entry", "message": message}, "no message")

    play(scene)


def test_a_file_is_on_the_shelf_as_long_as_who_put_it_there(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights" * 1000)

    async def scene() -> None:
        shelves = Shelves(tmp_path / "cache")
        services = shelves.services()
        asked = Asked(services["shelve"], {"path": str(path)})
        reply = await asked.lines.read_line()
        assert reply is not None
        [key] = reply["keys"].values()
        source = shelves.find(key)
        assert source is not None
        assert source.facts.nbytes == 7000
        assert shelves.find("ab" * 32) is None
        await asked.end()
        assert shelves.find(key) is None
        await refused(services["shelve"], {"path": str(tmp_path / "none.gguf")})

    asyncio.run(asyncio.wait_for(scene(), 20))
