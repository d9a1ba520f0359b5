"""Who is not let in, and that the others notice nothing; run by `test_strangers.py` in a network namespace."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ropeway.transport.iroh import peers
from ropeway.transport.iroh.endpoint import Endpoint, NodeAddress, Unreachable, node_bytes
from ropeway.transport.iroh.peers import Greeting, prove
from ropeway.transport.iroh.proof import ACCEPTOR, DIALER, HELLO_BYTES, NotProved, make_hello, make_proof
from ropeway.transport.iroh.services import Refused, Service
from ropeway.transport.iroh.streams import Lines, QuicStream, StreamEnded, read_exactly
from ropeway.transport.iroh.switchboard import MOST_UNPROVED, Switchboard

KEY = bytes(range(32))
BIND = ("127.0.0.1:0", "[::1]:0")
ME = Greeting("stranger", NodeAddress())


async def echo(_first: dict[str, Any], lines: Lines, node: str) -> None:
    await lines.write_line({"you": node})
    while data := await lines.read(4096):
        await lines.write(data)


@asynccontextmanager
async def board(book: dict[str, NodeAddress], key: bytes = KEY) -> AsyncIterator[Switchboard]:
    """A node that answers "echo", and "here" only to itself."""
    endpoint = await Endpoint.bind(os.urandom(32), BIND)
    book[endpoint.node] = endpoint.address()
    services: dict[str, Service] = {"echo": echo, "here": echo}
    here = Switchboard(endpoint, key, "test", services, local=frozenset({"here"}), address=book.get)
    here.start()
    try:
        yield here
    finally:
        await here.close()


def play(scene: Callable[[Switchboard, Switchboard, dict[str, NodeAddress]], Awaitable[None]]) -> None:
    """Two nodes of one cluster that talk before, during and after a scene."""

    async def run() -> None:
        book: dict[str, NodeAddress] = {}
        async with board(book) as one, board(book) as other:
            lines = await one.open(other.node, {"to": "echo"})
            assert await lines.read_line() == {"you": one.node}
            await scene(one, other, book)
            await lines.write(b"still here")
            assert await lines.read(64) == b"still here"
            await lines.finish()

    asyncio.run(asyncio.wait_for(run(), 60))


async def dial(node: Switchboard) -> tuple[Endpoint, Any]:
    """A stranger's connection to a node, encrypted and without any proof yet."""
    endpoint = await Endpoint.bind(os.urandom(32), BIND)
    return endpoint, await endpoint.dial(node.node, node.endpoint.address())


def test_a_node_of_another_cluster() -> None:
    async def scene(one: Switchboard, _: Switchboard, book: dict[str, NodeAddress]) -> None:
        async with board(book, bytes(32)) as stranger:
            with pytest.raises((Unreachable, NotProved), match="wrong_cluster"):
                await stranger.peer(one.node)
            assert one.refused == {"wrong_cluster": 1}
            with pytest.raises((Unreachable, NotProved), match="wrong_cluster"):
                await one.peer(stranger.node)
            assert stranger.refused == {"wrong_cluster": 1}

    play(scene)


@pytest.mark.parametrize("kind", ["another key", "replayed", "of another node"])
def test_proofs_that_do_not_hold(kind: str) -> None:
    async def scene(one: Switchboard, other: Switchboard, _: dict[str, NodeAddress]) -> None:
        endpoint, connection = await dial(one)
        stream = QuicStream(await connection.open_bi(), endpoint.error, lambda: None)
        hello, ids = make_hello(KEY, bytes(32)), (node_bytes(endpoint.node), node_bytes(one.node))
        await stream.write(hello)
        theirs = await read_exactly(stream, HELLO_BYTES)
        proof = {
            "another key": make_proof(bytes(32), DIALER, ids, (hello, theirs)),
            "replayed": make_proof(KEY, DIALER, ids, (hello, make_hello(KEY, b"r" * 32))),
            "of another node": make_proof(KEY, DIALER, (node_bytes(other.node), ids[1]), (hello, theirs)),
        }[kind]
        await stream.write(proof)
        with pytest.raises(StreamEnded, match="wrong_key"):
            await read_exactly(stream, 1)
        assert "wrong_key" in str(await connection.closed())
        assert one.refused == {"wrong_key": 1}
        await endpoint.close()

    play(scene)


def test_a_node_that_has_no_key_itself_is_left_by_who_dials_it() -> None:
    async def scene(one: Switchboard, _: Switchboard, book: dict[str, NodeAddress]) -> None:
        endpoint = await Endpoint.bind(os.urandom(32), BIND)
        book[endpoint.node] = endpoint.address()

        async def pretend() -> None:
            incoming = await endpoint.incoming()
            connection = await endpoint.accept(incoming, 10)
            stream = QuicStream(await connection.accept_bi(), endpoint.error, lambda: None)
            hello = await read_exactly(stream, HELLO_BYTES)
            await stream.write(hello)  # the cluster's id is no secret
            await read_exactly(stream, 32)
            await stream.write(bytes(32))
            await connection.closed()

        pretending = asyncio.ensure_future(pretend())
        with pytest.raises(NotProved, match="wrong_key"):
            await one.peer(endpoint.node)
        await pretending
        await endpoint.close()

    play(scene)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: node\r\n\r\n" + bytes(40)])
def test_who_says_nothing_or_something_else_is_dropped(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(peers, "PROOF_S", 0.5)

    async def scene(one: Switchboard, _: Switchboard, _book: dict[str, NodeAddress]) -> None:
        endpoint, connection = await dial(one)
        if said:
            stream = QuicStream(await connection.open_bi(), endpoint.error, lambda: None)
            await stream.write(said)
        assert ("wrong_magic" if said else "late") in str(await connection.closed())
        assert one.refused == ({"wrong_magic": 1} if said else {"unproved": 1})
        await endpoint.close()

    play(scene)


def test_a_flood_of_strangers_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PROOF_S", 2.0)

    async def scene(one: Switchboard, _: Switchboard, book: dict[str, NodeAddress]) -> None:
        endpoint = await Endpoint.bind(os.urandom(32), BIND)
        address = one.endpoint.address()
        dials = [endpoint.dial(one.node, address) for _ in range(2 * MOST_UNPROVED)]
        tried = await asyncio.gather(*dials, return_exceptions=True)
        assert sum(not isinstance(result, Exception) for result in tried) <= MOST_UNPROVED
        assert one.refused["crowded"] >= MOST_UNPROVED
        # Those who say nothing are dropped, and then there is room for one of ours.
        async with board(book) as third:
            while True:
                try:
                    await third.peer(one.node)
                    break
                except Unreachable:
                    await asyncio.sleep(0.1)
            assert await third.ask(one.node, {"to": "echo"}) == {"you": third.node}
        await endpoint.close()

    play(scene)


def test_services_are_refused_by_name() -> None:
    async def scene(one: Switchboard, other: Switchboard, _: dict[str, NodeAddress]) -> None:
        with pytest.raises(Refused, match="no service 'shell'"):
            await one.ask(other.node, {"to": "shell"})
        with pytest.raises(Refused, match="'here' is for this machine"):
            await one.ask(other.node, {"to": "here"})
        peer = await one.peer(other.node)
        for line in (b"what\n", b"[]\n", b'{"to":7}\n', b"\xff" * 64 + b"\n"):
            lines = await peer.open()
            await lines.write(line)
            await lines.finish()
            try:
                reply = await lines.read_line()
            except StreamEnded:
                continue
            assert reply is None or "error" in reply

    play(scene)


def test_a_late_proof_of_ours_is_our_own_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PROOF_S", 0.3)

    async def scene(one: Switchboard, _: Switchboard, _book: dict[str, NodeAddress]) -> None:
        silent = await Endpoint.bind(os.urandom(32), BIND)
        accepting = asyncio.ensure_future(_accept(silent))
        connection = await one.endpoint.dial(silent.node, silent.address())
        await accepting
        with pytest.raises(Unreachable, match="did not prove itself"):
            await prove(one.endpoint, connection, DIALER, KEY, ME)
        await silent.close()

    play(scene)


async def _accept(endpoint: Endpoint) -> Any:
    return await endpoint.accept(await endpoint.incoming(), 10)


def test_both_sides_greet_each_other() -> None:
    async def run() -> None:
        one, other = await Endpoint.bind(os.urandom(32), BIND), await Endpoint.bind(os.urandom(32), BIND)
        accepting = asyncio.ensure_future(_accept(other))
        connection = await one.dial(other.node, other.address())
        there = Greeting("there", NodeAddress(("10.1.1.1:1",)))
        heard, told = await asyncio.gather(
            prove(one, connection, DIALER, KEY, ME), prove(other, await accepting, ACCEPTOR, KEY, there)
        )
        assert (heard, told) == (there, ME)
        await one.close()
        await other.close()

    asyncio.run(run())
