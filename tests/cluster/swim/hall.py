"""Members joined by hand: packets go across when the test says so, and the test may lose, keep or forge them."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from random import Random

from ropeway.cluster.swim import LAN, Contact, Event, Seal, Send, Statement, Swim, Timing, Unsealed
from ropeway.cluster.swim.packets import Body, Packet, decode_packet, encode_body, with_records
from ropeway.cluster.swim.records import Record, encode_record

CLUSTER = b"hall 001"
A, B, C, D = (letter * 32 for letter in (b"A", b"B", b"C", b"D"))
START = 1_000

Lose = Callable[[bytes, Send], bool]


def keep_all(_sender: bytes, _send: Send) -> bool:
    return False


class KeyedSeal:
    """A stand-in for Ed25519 with the same shape: 64 bytes that only the member of that id can make."""

    def __init__(self, member: bytes) -> None:
        self._member = member

    def sign(self, said: bytes) -> bytes:
        return hmac.digest(b"secret of " + self._member, said, "sha512")

    def holds(self, member: bytes, said: bytes, seal: bytes) -> bool:
        return hmac.compare_digest(KeyedSeal(member).sign(said), seal)


class Hall:
    """Members by id, and the time."""

    def __init__(self, *ids: bytes, timing: Timing = LAN, sealed: bool = False) -> None:
        self.now = 0.0
        self.timing = timing
        self.members: dict[bytes, Swim] = {}
        self.events: dict[bytes, list[Event]] = {}
        self.sent: list[tuple[bytes, Send]] = []
        self._sealed = sealed
        for id_ in ids:
            self.add(id_)

    def add(self, id_: bytes, *, start: int = START, label: str = "") -> Swim:
        """A member that knows nobody yet."""
        seal: Seal = KeyedSeal(id_) if self._sealed else Unsealed()
        swim = Swim(Statement(id_, start, label=label), CLUSTER, self.timing, Random(id_), self.now, seal)
        self.members[id_] = swim
        self.events[id_] = []
        return swim

    def join(self, *ids: bytes, by: bytes) -> None:
        """Let members in, and wait until everybody agrees."""
        for id_ in ids:
            self.members[id_].join(self.now, [Contact(by)])
        self.run(3.0)
        for events in self.events.values():
            events.clear()

    def pump(self, lose: Lose = keep_all) -> None:
        """Carry packets across until nobody has more to say."""
        while waiting := [(id_, send) for id_, swim in self.members.items() for send in swim.outgoing()]:
            for sender, send in waiting:
                self.sent.append((sender, send))
                if send.to in self.members and not lose(sender, send):
                    self.members[send.to].received(self.now, sender, send.packet)
        for id_, swim in self.members.items():
            self.events[id_] += swim.events()

    def run(self, seconds: float, lose: Lose = keep_all, but: bytes = b"") -> None:
        """Let time pass in tenths of a second; `but` is stopped: it does nothing, and what comes to it is lost."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            for id_, swim in self.members.items():
                if id_ != but:
                    swim.tick(self.now)
            self.pump(lambda sender, send: but in (sender, send.to) or lose(sender, send))

    def kinds(self, id_: bytes) -> list[str]:
        """The names of a member's events so far."""
        return [type(event).__name__ for event in self.events[id_]]

    def bodies(self, sender: bytes, to: bytes) -> list[Body]:
        """The bodies of the packets from one member to another so far."""
        return [decode_packet(send.packet).body for who, send in self.sent if (who, send.to) == (sender, to)]


def make_packet(body: Body, *records: Record, cluster: bytes = CLUSTER) -> bytes:
    """The bytes of a packet that nobody made."""
    return with_records(encode_body(cluster, body), [encode_record(record) for record in records])


def sent_packets(swim: Swim) -> list[Packet]:
    """What a member has to send now."""
    return [decode_packet(send.packet) for send in swim.outgoing()]
