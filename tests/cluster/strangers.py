"""Who wants to harm a cluster that serves: a process of its own on one of the hosts, which prints what it was told.

    ROPEWAY_TICKET=... python -m cluster.strangers MEMBER

It turns to the node of the ticket; MEMBER is the id of another one, for which it speaks.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

from cluster.swim.hall import make_packet
from ropeway.cluster.membership import SWIM_CLUSTER_BYTES, KeySeal
from ropeway.cluster.names import Entry
from ropeway.cluster.swim import Statement
from ropeway.cluster.swim.packets import Gossip
from ropeway.cluster.swim.records import NameRecord, Record, stated, statement_said
from ropeway.cluster.ticket import Ticket
from ropeway.transport.iroh.binding import load
from ropeway.transport.iroh.endpoint import Endpoint, NodeAddress, Unreachable, node_bytes
from ropeway.transport.iroh.peers import Greeting, prove
from ropeway.transport.iroh.proof import DIALER, HELLO_BYTES, NotProved, cluster_id, make_hello, make_proof
from ropeway.transport.iroh.streams import QuicStream, StreamEnded, read_exactly

FLOOD = 150
ME = Greeting("stranger", NodeAddress())
_NAME = re.compile(r"\b(wrong_\w+|bad_\w+|late)\b")


class Stranger:
    """One attempt after the other, each with a key pair of its own; `told` counts the names of the refusals."""

    def __init__(self, ticket: Ticket, member: bytes) -> None:
        self._ticket = ticket
        self._member = member
        self.told: Counter[str] = Counter()

    async def dial(self, secret: bytes = b"") -> tuple[Endpoint, Any]:
        """A connection that TLS has encrypted, and no more."""
        endpoint = await Endpoint.bind(secret or os.urandom(32))
        return endpoint, await endpoint.dial(self._ticket.node, self._ticket.address)

    def hear(self, why: object) -> None:
        """Note the name of a refusal."""
        found = _NAME.search(str(why))
        self.told[found[1] if found else str(why)] += 1

    async def of_another_cluster(self) -> None:
        endpoint, connection = await self.dial()
        try:
            await prove(endpoint, connection, DIALER, bytes(32), ME)
        except (NotProved, Unreachable) as error:
            self.hear(error)
        await endpoint.close()

    async def with_a_proof_of(self, key: bytes, *, replayed: bool) -> None:
        """The cluster's id, which is no secret, and a proof that is not for this connection."""
        endpoint, connection = await self.dial()
        stream = QuicStream(await connection.open_bi(), endpoint.error, lambda: None)
        hello, ids = make_hello(self._ticket.key, bytes(32)), (node_bytes(endpoint.node), node_bytes(self._ticket.node))
        await stream.write(hello)
        theirs = await read_exactly(stream, HELLO_BYTES)
        seen = make_hello(self._ticket.key, b"r" * 32) if replayed else theirs
        await stream.write(make_proof(key, DIALER, ids, (hello, seen)))
        try:
            await read_exactly(stream, 1)
        except StreamEnded as error:
            self.hear(error)
        await endpoint.close()

    async def as_a_member_that_says(self, *records: Record) -> None:
        """The true key, and words that are another's."""
        endpoint, connection = await self.dial()
        await prove(endpoint, connection, DIALER, self._ticket.key, ME)
        cluster = cluster_id(self._ticket.key)[:SWIM_CLUSTER_BYTES]
        connection.send_datagram(b"\1" + make_packet(Gossip(), *records, cluster=cluster))
        self.hear(await connection.closed())
        await endpoint.close()

    async def lie(self) -> None:
        """A statement and a name of other members, sealed by a key that is not theirs."""
        seal = KeySeal(load(), os.urandom(32))
        said = Statement(self._member, 1 << 50, label="stranger", address=b",10.9.9.9:1")
        cluster = cluster_id(self._ticket.key)[:SWIM_CLUSTER_BYTES]
        await self.as_a_member_that_says(stated(replace(said, seal=seal.sign(statement_said(cluster, said)))))
        await self.as_a_member_that_says(
            NameRecord(Entry("ring-small", 1 << 40, 1 << 50, self._member, seal=bytes(64)))
        )

    async def flood(self) -> None:
        """Many who say nothing, all at once."""
        endpoint = await Endpoint.bind(os.urandom(32))
        dials = [endpoint.dial(self._ticket.node, self._ticket.address) for _ in range(FLOOD)]
        found = await asyncio.gather(*dials, return_exceptions=True)
        for connection in found:
            if isinstance(connection, BaseException):
                self.told["turned away"] += 1
            else:
                self.hear(await connection.closed())
        await endpoint.close()


async def main(member: str) -> Counter[str]:
    """All attempts."""
    ticket = Ticket.parse(os.environ["ROPEWAY_TICKET"])
    stranger = Stranger(ticket, bytes.fromhex(member))
    await stranger.of_another_cluster()
    await stranger.with_a_proof_of(bytes(32), replayed=False)
    await stranger.with_a_proof_of(ticket.key, replayed=True)
    await stranger.lie()
    await stranger.flood()
    return stranger.told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
