"""One member of a cluster: packets and the time in; packets, changes and the next time out (docs/membership.md)."""

from __future__ import annotations

from collections.abc import Sequence

from ropeway.cluster.names import Entry, Names
from ropeway.cluster.swim.directory import Directory
from ropeway.cluster.swim.errors import Fault, PacketError
from ropeway.cluster.swim.events import Event, Refused, Send
from ropeway.cluster.swim.exchange import Exchange
from ropeway.cluster.swim.gossip import GossipQueue
from ropeway.cluster.swim.outreach import Outreach
from ropeway.cluster.swim.packets import (
    CLUSTER_BYTES,
    Ack,
    Gossip,
    Nack,
    Packet,
    Ping,
    PingReq,
    Pull,
    Refuse,
    Sync,
    Told,
    decode_packet,
)
from ropeway.cluster.swim.post import Post
from ropeway.cluster.swim.probing import Prober
from ropeway.cluster.swim.records import MemberRecord, NameRecord, Record, encode_record, stated
from ropeway.cluster.swim.roster import Roster
from ropeway.cluster.swim.suspicion import Health
from ropeway.cluster.swim.timing import Timing
from ropeway.cluster.swim.values import Claim, Contact, Draws, Member, Seal, State, Statement
from ropeway.cluster.swim.voice import Voice


class Swim:
    """Membership and names of one node. See the package's docstring for how to drive it.

    `cluster` has 8 bytes, the same in every member (a hash of its key). `draw` is the only randomness.
    """

    def __init__(self, me: Statement, cluster: bytes, timing: Timing, draw: Draws, now: float, seal: Seal) -> None:
        if len(cluster) != CLUSTER_BYTES:
            raise ValueError(f"cluster: {len(cluster)} bytes, expected {CLUSTER_BYTES}")
        self._cluster = cluster
        self._timing = timing
        self._health = Health(timing.awareness_max)
        self._voice = Voice(cluster, me, seal)
        self._roster = Roster(now, self._voice, timing, self._health)
        self._queue = GossipQueue()
        self._post = Post(cluster, self._roster, self._queue, timing)
        self._names = Names(timing.tombstone_s)
        self._directory = Directory(self._names, self._roster, self._voice, self._queue)
        self._exchange = Exchange(self._roster, self._names, self._post.send_records)
        self._prober = Prober(now, self._roster, timing, self._health, draw, self._post.send)
        self._outreach = Outreach(now, self._roster, self._queue, self._post, self._exchange, timing, draw)
        self._events: list[Event] = []
        self._due = now
        self._settle(now)

    # What the driver calls.

    def join(self, now: float, contacts: Sequence[Contact]) -> None:
        """Come in by these members; tried again until one answers, and whenever we are alone later."""
        self._wake(now)
        for contact in contacts:
            if contact.member != self.id:
                self._post.contacts[contact.member] = contact.address
        self._outreach.join(now)
        self._settle(now)

    def received(self, now: float, sender: bytes, packet: bytes) -> None:
        """A datagram from the connection whose proved key is `sender`. Raises PacketError; nothing is changed then."""
        parsed = decode_packet(packet)
        self._judge(sender, parsed)
        self._wake(now)
        if not self.left:
            self._hear(now, sender, parsed)
        self._settle(now)

    def tick(self, now: float) -> None:
        """Do what is due. Calling it early does no harm."""
        self._wake(now)
        if self.left:
            self._outreach.gossip(now)
        else:
            self._prober.tick(now)
            self._roster.expire(now)
            self._names.expire(now)
            self._spread()
            self._outreach.tick(now, self._voice.statement)
        self._settle(now)

    def next_at(self) -> float:
        """When to call `tick` next."""
        return self._due

    def outgoing(self) -> list[Send]:
        """Packets to send; each is given once."""
        return self._post.take()

    def events(self) -> list[Event]:
        """What has changed; each is given once."""
        out, self._events = self._events, []
        return out

    def leave(self, now: float) -> None:
        """Leave the cluster by our own word. Drive on for a few gossip intervals, so that others hear it."""
        self._wake(now)
        if not self.left:
            self._roster.speak(now, self._voice.restate(self._voice.statement.incarnation, left=True))
            self._spread()
            self._outreach.gossip(now)
        self._settle(now)

    def move(self, now: float, address: bytes) -> None:
        """Our address has changed. Raises ValueError for one that is too long."""
        self._wake(now)
        if not self.left and address != self._voice.statement.address:
            self._roster.speak(now, self._voice.restate(self._voice.statement.incarnation, address=address))
        self._settle(now)

    def register(self, now: float, name: str, value: bytes = b"") -> None:
        """Let a name lead here. Raises ValueError for a bad name or value."""
        self._wake(now)
        self._directory.write(now, name, value, live=True)
        self._settle(now)

    def unregister(self, now: float, name: str) -> None:
        """Take back a name that leads here; another's is left alone."""
        self._wake(now)
        held = self._names.get(name)
        if held is not None and held.entry.live and held.entry.node == self.id:
            self._directory.write(now, name, b"", live=False)
            self._settle(now)

    # What is believed.

    @property
    def id(self) -> bytes:
        """This member's key."""
        return self._roster.me

    @property
    def left(self) -> bool:
        """Whether we have left."""
        return self._voice.statement.left

    @property
    def health(self) -> int:
        """Lifeguard's score: 0 is well; above, probably we are the slow one."""
        return self._health.score

    def member(self, member: bytes) -> Member | None:
        """What is believed of a member, if it is known."""
        return self._roster.get(member)

    def members(self) -> tuple[Member, ...]:
        """Every member that is known, this one too, by id."""
        return tuple(sorted(self._roster.all(), key=lambda member: member.id))

    def living(self) -> tuple[Member, ...]:
        """The members that are alive or suspected, this one too, by id."""
        return tuple(member for member in self.members() if member.state.living)

    def resolve(self, name: str) -> Entry | None:
        """The entry that a name leads to now, or None."""
        return self._names.resolve(name, self._roster.alive)

    def names(self) -> dict[str, Entry]:
        """All names that lead somewhere now, sorted."""
        return dict(sorted(self._directory.shown.items()))

    # Hearing.

    def _judge(self, sender: bytes, packet: Packet) -> None:
        if packet.cluster != self._cluster:
            raise PacketError(Fault.WRONG_CLUSTER, f"cluster {packet.cluster.hex()}, ours is {self._cluster.hex()}", 8)
        if sender == self.id:
            raise PacketError(Fault.WRONG_SENDER, "the sender has our own key")
        if isinstance(packet.body, Sync) and packet.body.join:
            record = packet.records[0] if len(packet.records) == 1 else None
            if not isinstance(record, MemberRecord) or record.state is not State.ALIVE:
                raise PacketError(Fault.BAD_VALUE, "who joins sends one record: itself, alive")
            if record.statement.member != sender:
                who = record.statement.member.hex()[:16]
                raise PacketError(Fault.WRONG_SENDER, f"{sender.hex()[:16]} joins as {who}")
        for record in packet.records:
            self._judge_seal(record)

    def _judge_seal(self, record: Record) -> None:
        """Check what we do not hold already, bit for bit."""
        if isinstance(record, MemberRecord):
            known = self._roster.get(record.statement.member)
            if known is None or known.statement != record.statement:
                self._voice.check_statement(record.statement)
        elif isinstance(record, NameRecord):
            held = self._names.get(record.entry.name)
            if held is None or held.entry != record.entry:
                self._voice.check_entry(record.entry)

    def _hear(self, now: float, sender: bytes, packet: Packet) -> None:
        body = packet.body
        fault = self._unwelcome(sender, packet.records)
        if fault is not None:
            self._post.send_records(sender, Refuse(fault), [])
            return
        before = self._roster.version, self._names.version
        if any(self._roster.missed_by(record) for record in packet.records if not isinstance(record, NameRecord)):
            self._post.send_records(sender, Gossip(), [encode_record(stated(self._voice.statement))])
        for record in packet.records:
            match record:
                case MemberRecord():
                    self._roster.hear_member(now, record)
                case Claim():
                    self._roster.hear_claim(now, record)
                case NameRecord(entry, age_s):
                    self._directory.hear(now, entry, age_s)
        if self._roster.get(sender) is None and not isinstance(body, Refuse | Told):
            self._exchange.pull_member(sender)
        match body:
            case Ping(seq):
                self._post.send(sender, Ack(seq))
            case Ack(seq):
                self._prober.acked(sender, seq)
            case PingReq(seq, target):
                self._prober.asked(now, sender, seq, target)
            case Nack(seq):
                self._prober.nacked(sender, seq)
            case Sync():
                self._exchange.asked(now, sender, body)
            case Pull():
                self._exchange.pulled(now, sender, body)
            case Told(more):
                if before != (self._roster.version, self._names.version):
                    self._outreach.sync_soon(now)
                    if more:
                        self._exchange.begin(sender)
            case Refuse(fault):
                if sender in self._post.contacts and self._roster.living == 1:
                    self._events.append(Refused(sender, fault))
            case Gossip():
                pass

    def _unwelcome(self, sender: bytes, records: tuple[Record, ...]) -> Fault | None:
        """Why a sender that introduces itself cannot come in, or not by that label; None if it can."""
        for record in records:
            if not isinstance(record, MemberRecord) or record.statement.member != sender:
                continue
            known = self._roster.get(sender)
            label = record.statement.label
            if label and (known is None or known.label != label) and self._roster.holds_label(label, sender):
                return Fault.LABEL_TAKEN
            if not self._roster.has_room(sender):
                return Fault.CLUSTER_FULL
        return None

    # Time and consequences.

    def _wake(self, now: float) -> None:
        """Notice that we stood still: what we did not hear meanwhile is nobody's fault but ours."""
        late_s = now - self._due
        if late_s > self._timing.probe_interval_s:
            self._prober.stopped(now)
            self._roster.delay(late_s)
            self._health.worse()
            self._due = now

    def _spread(self) -> None:
        """Queue what the roster has to say."""
        for record in self._roster.news:
            subject = record.statement.member if isinstance(record, MemberRecord) else record.member
            self._queue.put(subject, encode_record(record))
        self._roster.news.clear()

    def _settle(self, now: float) -> None:
        """Draw the consequences, and set the next time. Who was held dead was told nothing: it asks."""
        self._spread()
        self._events += self._roster.events
        self._roster.events.clear()
        self._events += self._directory.settle(now)
        if self._roster.was_dead:
            self._roster.was_dead = False
            self._outreach.sync_soon(now)
        if self._queue.fresh:
            self._queue.fresh = False
            self._outreach.sync_after_news(now)
        due = self._outreach.next_at(self.left)
        if not self.left:
            due = min(due, self._prober.next_at(), self._roster.next_at(), self._names.next_at())
        self._due = max(now, due)
