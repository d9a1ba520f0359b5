"""Packets on their way out: news ride along wherever there is room, and who is doubted hears of it first."""

from __future__ import annotations

from ropeway.cluster.swim.events import Send
from ropeway.cluster.swim.gossip import GossipQueue
from ropeway.cluster.swim.packets import PACKET_BYTES, RECORDS_MOST, Body, Gossip, encode_body, with_records
from ropeway.cluster.swim.records import Record, encode_record
from ropeway.cluster.swim.roster import Roster
from ropeway.cluster.swim.timing import Timing
from ropeway.cluster.swim.values import Claim, State


class Post:
    """Makes packets of at most 1,200 bytes and keeps them until they are fetched."""

    def __init__(self, cluster: bytes, roster: Roster, queue: GossipQueue, timing: Timing) -> None:
        self.contacts: dict[bytes, bytes] = {}
        self._cluster = cluster
        self._roster = roster
        self._queue = queue
        self._timing = timing
        self._outgoing: list[Send] = []

    def send(self, to: bytes, body: Body) -> None:
        """A packet with as much news as fits."""
        head = encode_body(self._cluster, body)
        records = self._doubt(to)
        room = PACKET_BYTES - len(head) - sum(map(len, records))
        most_told = self._timing.retransmits(self._roster.living)
        self._put(to, head, records + self._queue.take(room, most_told, RECORDS_MOST - len(records)))

    def gossip(self, to: bytes) -> None:
        """A packet of news; none where there is none."""
        if self._queue:
            self.send(to, Gossip())

    def send_records(self, to: bytes, body: Body, records: list[bytes]) -> None:
        """A packet with just these records; they must fit."""
        self._put(to, encode_body(self._cluster, body), records)

    def take(self) -> list[Send]:
        """What is to be sent; each packet once."""
        out, self._outgoing = self._outgoing, []
        return out

    def _doubt(self, to: bytes) -> list[bytes]:
        """What is claimed of the one that we write to, so that it can refute at once (Lifeguard's buddy system)."""
        held = self._roster.get(to)
        if held is None or held.state not in (State.SUSPECT, State.DEAD):
            return []
        record: Record = Claim(to, held.start, held.incarnation, held.state, held.by)
        return [encode_record(record)]

    def _put(self, to: bytes, head: bytes, records: list[bytes]) -> None:
        held = self._roster.get(to)
        address = self.contacts.get(to, b"") if held is None else held.address
        packet = with_records(head, records)
        assert len(packet) <= PACKET_BYTES, f"a packet of {len(packet)} bytes"
        self._outgoing.append(Send(to, address, packet))
