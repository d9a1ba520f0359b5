"""Who is believed to be what: statements and claims in, by their precedence; suspicions; changes and news out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ropeway.cluster.swim.events import (
    Died,
    Event,
    Forgotten,
    Joined,
    Left,
    Outlived,
    Recovered,
    Suspected,
    Updated,
)
from ropeway.cluster.swim.records import MemberRecord, stated
from ropeway.cluster.swim.suspicion import Health, Suspicion
from ropeway.cluster.swim.timing import Timing
from ropeway.cluster.swim.values import Claim, Member, Rank, State, Statement
from ropeway.cluster.swim.voice import Voice

MEMBERS_MOST: Final = 4_096
"""Most members that are held, dead ones among them; the longest dead make room for new ones."""


class Roster:
    """All members, this one too.

    The owner empties `events` (for its own owner), `news` (records to pass on) and `touched` (members that began or
    ended to live, or live anew); the table of push-pull empties `changed`. `was_dead`: others held us dead, until
    the owner has seen it.
    """

    def __init__(self, now: float, voice: Voice, timing: Timing, health: Health) -> None:
        self.events: list[Event] = []
        self.news: list[MemberRecord | Claim] = []
        self.touched: set[bytes] = set()
        self.suspicions: dict[bytes, Suspicion] = {}
        self.me = voice.statement.member
        self.was_dead = False
        self.living = 0
        self.changed: set[bytes] = set()
        self.version = 0
        self._members: dict[bytes, Member] = {}
        self._voice = voice
        self._timing = timing
        self._health = health
        self._forget_at = now + timing.forget_s
        self._put(_as_stated(voice.statement, now))

    def get(self, member: bytes) -> Member | None:
        """What is believed of a member, if it is known."""
        return self._members.get(member)

    def all(self) -> Iterator[Member]:
        """Every member, this one too, in no order."""
        return iter(self._members.values())

    def alive(self, member: bytes, start: int) -> bool:
        """Whether a member lives in the life that began at `start`."""
        held = self._members.get(member)
        return held is not None and held.start == start and held.state.living

    def others(self) -> list[bytes]:
        """The living members but this one."""
        return [id_ for id_, held in self._members.items() if held.state.living and id_ != self.me]

    def holds_label(self, label: str, but: bytes) -> bool:
        """Whether a living member other than `but` goes by this label."""
        return any(m.label == label and m.state.living and m.id != but for m in self._members.values())

    def has_room(self, member: bytes) -> bool:
        """Whether a member is known or could be taken in."""
        full = len(self._members) >= MEMBERS_MOST
        return member in self._members or not full or any(not held.state.living for held in self._members.values())

    def speak(self, now: float, statement: Statement) -> None:
        """This member has made a statement: hold it and pass it on."""
        before = self._members[self.me]
        self._put(_as_stated(statement, now))
        self.news.append(stated(statement))
        if before.start != statement.start or before.state is not statement.state:
            self.touched.add(self.me)

    def hear_member(self, now: float, record: MemberRecord) -> None:
        """A member in full: its statement first, then what is believed of it."""
        statement = record.statement
        if statement.member == self.me:
            self._hear_of_me(now, statement.rank)
        elif statement.member not in self._members:
            self._take_in(now, record)
        else:
            self._hear_statement(now, statement, record.age_s)
        if record.state in (State.SUSPECT, State.DEAD):
            claim = Claim(statement.member, statement.start, record.incarnation, record.state, record.by)
            self.hear_claim(now, claim)

    def hear_claim(self, now: float, claim: Claim) -> None:
        """What somebody says of another; of one that has left nobody has anything to say.

        A death counts as a suspicion that everybody confirms: nobody is dead here before it has been a suspect here for
        the shortest time. So a member that the other side of a healed partition held dead can refute.
        """
        if claim.member == self.me:
            self._hear_of_me(now, claim.rank)
            return
        held = self._members.get(claim.member)
        if held is None or claim.start != held.start or held.state is State.LEFT:
            return
        if claim.rank > held.rank and held.state is State.DEAD and claim.state is State.DEAD:
            self._put(replace(held, incarnation=claim.incarnation, by=claim.by))
            return
        if held.state is not State.SUSPECT or claim.incarnation > held.incarnation:
            if claim.rank <= held.rank:
                return
            self._suspect(now, held, claim.incarnation, claim.by)
        elif claim.incarnation < held.incarnation:
            return
        elif claim.by in self._members and self.suspicions[held.id].confirm(claim.by) and claim.state is State.SUSPECT:
            self.news.append(claim)
        if claim.state is State.DEAD:
            self.suspicions[held.id].make_sure()
            self.expire(now)

    def missed_by(self, record: MemberRecord | Claim) -> bool:
        """Whether somebody doubts us who has not heard that we have answered this already."""
        said = record.statement if isinstance(record, MemberRecord) else record
        mine = self._voice.statement
        doubted = said.member == self.me and record.state in (State.SUSPECT, State.DEAD)
        return doubted and (said.start, record.incarnation) < (mine.start, mine.incarnation)

    def accuse(self, now: float, member: bytes) -> None:
        """A member has not answered our own probe."""
        held = self._members.get(member)
        if held is not None and held.state.living:
            self.hear_claim(now, Claim(member, held.start, held.incarnation, State.SUSPECT, self.me))

    def expire(self, now: float) -> None:
        """End the suspicions that are over, and forget those who are long gone."""
        for member, suspicion in list(self.suspicions.items()):
            if suspicion.ends_at() <= now:
                self._bury(now, self._members[member])
        if self._forget_at <= now:
            self._forget(now)

    def next_at(self) -> float:
        """When `expire` has something to do."""
        ends = (suspicion.ends_at() for suspicion in self.suspicions.values())
        return min(ends, default=self._forget_at)

    def delay(self, by_s: float) -> None:
        """We were stopped: nobody's suspicion ran meanwhile."""
        for suspicion in self.suspicions.values():
            suspicion.delay(by_s)

    def _hear_of_me(self, now: float, rank: Rank) -> None:
        """Refute what is at least as new as what I said last (facts.md); an older claim is answered already."""
        mine = self._voice.statement
        start, incarnation, state = rank
        if mine.left or start < mine.start or (start == mine.start and incarnation < mine.incarnation):
            return
        if start > mine.start:
            self.speak(now, self._voice.live_again(start))
            self.events.append(Outlived(start))
        elif rank != mine.rank:
            self.speak(now, self._voice.restate(incarnation))
            if state in (State.SUSPECT, State.DEAD):
                self._health.worse()
            self.was_dead |= state is State.DEAD

    def _take_in(self, now: float, record: MemberRecord) -> None:
        gone = record.state in (State.DEAD, State.LEFT)
        if (gone and record.age_s >= self._timing.forget_s) or not self._make_room():
            return
        if not gone:
            member = _as_stated(record.statement, now)
            self.events.append(Joined(member))
            self.news.append(stated(record.statement))
            self.touched.add(member.id)
        else:
            member = Member(record.statement, record.state, record.incarnation, record.by, now - record.age_s)
        self._put(member)

    def _hear_statement(self, now: float, statement: Statement, age_s: int) -> None:
        held = self._members[statement.member]
        before = held.statement.incarnation, held.statement.left
        newer = statement.start == held.start and (statement.incarnation, statement.left) > before
        if statement.rank <= held.rank and not (newer and statement.left):
            if newer:
                self._put(replace(held, statement=statement))
            return
        member = _as_stated(statement, now - age_s)
        self.suspicions.pop(member.id, None)
        self._put(member)
        self.news.append(stated(statement))
        if held.state.living != member.state.living or held.start != member.start:
            self.touched.add(member.id)
        if held.start != member.start and held.state.living:
            self.events.append(Died(held))
        if member.state is State.LEFT:
            if held.state.living:
                self.events.append(Left(member))
        elif held.start != member.start:
            self.events.append(Joined(member))
        elif held.state is not State.ALIVE:
            self.events.append(Recovered(member))
        elif (held.label, held.address) != (member.label, member.address):
            self.events.append(Updated(member))

    def _suspect(self, now: float, held: Member, incarnation: int, by: bytes) -> None:
        member = replace(held, state=State.SUSPECT, incarnation=incarnation, by=by, since=now)
        self._put(member)
        self.suspicions[member.id] = Suspicion(now, self._timing, self.living, by)
        self.news.append(Claim(member.id, member.start, incarnation, State.SUSPECT, by))
        if held.state is State.DEAD:
            self.touched.add(member.id)
            self.events.append(Recovered(member))
        self.events.append(Suspected(member))

    def _bury(self, now: float, held: Member) -> None:
        member = replace(held, state=State.DEAD, by=self.me, since=now)
        self.suspicions.pop(member.id, None)
        self._put(member)
        self.touched.add(member.id)
        self.news.append(Claim(member.id, member.start, member.incarnation, State.DEAD, self.me))
        self.events.append(Died(member))

    def _put(self, member: Member) -> None:
        before = self._members.get(member.id)
        self.living += member.state.living - (before is not None and before.state.living)
        self.version += 1
        self.changed.add(member.id)
        self._members[member.id] = member
        if not member.state.living:
            self._forget_at = min(self._forget_at, member.since + self._timing.forget_s)

    def _make_room(self) -> bool:
        if len(self._members) < MEMBERS_MOST:
            return True
        gone = [held for held in self._members.values() if not held.state.living]
        if not gone:
            return False
        self._drop(min(gone, key=lambda held: held.since))
        return True

    def _forget(self, now: float) -> None:
        gone = [held for held in self._members.values() if not held.state.living and held.id != self.me]
        for held in gone:
            if held.since + self._timing.forget_s <= now:
                self._drop(held)
        kept = (held.since for held in self._members.values() if not held.state.living and held.id != self.me)
        self._forget_at = min(kept, default=now) + self._timing.forget_s

    def _drop(self, held: Member) -> None:
        del self._members[held.id]
        self.version += 1
        self.changed.add(held.id)
        self.touched.add(held.id)
        self.events.append(Forgotten(held))


def _as_stated(statement: Statement, since: float) -> Member:
    return Member(statement, statement.state, statement.incarnation, statement.member, since)
