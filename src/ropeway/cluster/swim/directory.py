"""The names inside a member: written and heard, shown while their node lives, and passed on as news."""

from __future__ import annotations

from ropeway.cluster.names import Entry, Names
from ropeway.cluster.swim.events import Event, NameGone, NameSet
from ropeway.cluster.swim.gossip import GossipQueue
from ropeway.cluster.swim.records import NameRecord, encode_record
from ropeway.cluster.swim.roster import Roster
from ropeway.cluster.swim.voice import Voice


class Directory:
    """Names and who lives, together. `shown` is what leads somewhere now."""

    def __init__(self, names: Names, roster: Roster, voice: Voice, queue: GossipQueue) -> None:
        self.shown: dict[str, Entry] = {}
        self._names = names
        self._roster = roster
        self._voice = voice
        self._queue = queue
        self._changed: set[str] = set()
        self._generation = voice.statement.start

    def write(self, now: float, name: str, value: bytes, live: bool) -> None:
        """Write an entry of our own. Raises ValueError for a bad name or value."""
        entry = Entry(name, 0, self._voice.statement.start, self._roster.me, live, value)
        sealed = self._voice.signed(self._names.write(now, entry))
        self._names.seal(sealed)
        self._tell(sealed, 0)

    def hear(self, now: float, entry: Entry, age_s: int) -> None:
        """Take in an entry of a member that we know, unless it is from an earlier life of it."""
        owner = self._roster.get(entry.node)
        if entry.live and (owner is None or entry.generation < owner.start):
            return
        if self._names.merge(now, entry, age_s):
            self._tell(entry, age_s)

    def settle(self, now: float) -> list[Event]:
        """What has changed since the last call, by entries and by members that the roster has touched."""
        if self._generation != self._voice.statement.start:
            self._register_again(now)
        for member in sorted(self._roster.touched):
            self._changed.update(self._names.of(member))
            held = self._roster.get(member)
            if held is None:
                self._names.drop_node(member)
            else:
                self._names.drop_lives(member, held.start)
        self._roster.touched.clear()
        events: list[Event] = []
        for name in sorted(self._changed):
            entry = self._names.resolve(name, self._roster.alive)
            shown = self.shown.get(name)
            if entry is None and shown is not None:
                del self.shown[name]
                events.append(NameGone(name))
            elif entry is not None and entry != shown:
                self.shown[name] = entry
                events.append(NameSet(entry))
        self._changed.clear()
        return events

    def _register_again(self, now: float) -> None:
        """We had to begin another life: what leads here is registered in it."""
        self._generation = self._voice.statement.start
        for name in self._names.of(self._roster.me):
            held = self._names.get(name)
            if held is not None and held.entry.live:
                self.write(now, name, held.entry.value, live=True)

    def _tell(self, entry: Entry, age_s: int) -> None:
        self._changed.add(entry.name)
        self._queue.put(entry.name, encode_record(NameRecord(entry, age_s)))
