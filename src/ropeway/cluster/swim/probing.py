"""Probing: one member after the other in shuffled rounds, helpers where it is silent, and the same help for others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ropeway.cluster.swim.packets import Ack, Body, Nack, Ping, PingReq
from ropeway.cluster.swim.roster import Roster
from ropeway.cluster.swim.suspicion import Health
from ropeway.cluster.swim.timing import Timing
from ropeway.cluster.swim.values import Draws, State

NACK_SHARE: Final = 0.6
"""A helper says that it had no answer after this share of the time that the one who asked has left."""
ERRANDS_MOST: Final = 256


@dataclass(slots=True)
class _Probe:
    target: bytes
    seq: int
    ask_at: float
    ends_at: float
    helpers: set[bytes] = field(default_factory=set)
    silent: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Errand:
    """A ping that another member has asked for."""

    asker: bytes
    asker_seq: int
    target: bytes
    nack_at: float
    ends_at: float


class Prober:
    """One probe at a time. An ack counts only from the member that was pinged, or from a helper that was asked."""

    def __init__(
        self,
        now: float,
        roster: Roster,
        timing: Timing,
        health: Health,
        draw: Draws,
        send: Callable[[bytes, Body], None],
    ) -> None:
        self._roster = roster
        self._timing = timing
        self._health = health
        self._draw = draw
        self._send = send
        self._round: list[bytes] = []
        self._seq = draw.randrange(1 << 32)
        self._probe: _Probe | None = None
        self._errands: dict[int, _Errand] = {}
        self._begin_at = now + draw.random() * timing.probe_interval_s

    def next_at(self) -> float:
        """When `tick` has something to do."""
        errands = min((min(errand.nack_at, errand.ends_at) for errand in self._errands.values()), default=math.inf)
        if self._probe is None:
            return min(self._begin_at, errands)
        return min(self._probe.ask_at, self._probe.ends_at, errands)

    def tick(self, now: float) -> None:
        """Ask for help, give up on a silent member, begin the next probe, answer those who asked for help."""
        probe = self._probe
        if probe is not None and now >= probe.ends_at:
            self._fail(now, probe)
        elif probe is not None and now >= probe.ask_at:
            self._ask(probe)
        if self._probe is None and now >= self._begin_at:
            self._begin(now)
        for seq, errand in list(self._errands.items()):
            if now >= errand.ends_at:
                del self._errands[seq]
            elif now >= errand.nack_at:
                errand.nack_at = math.inf
                self._send(errand.asker, Nack(errand.asker_seq))

    def acked(self, sender: bytes, seq: int) -> None:
        """An ack has come."""
        probe = self._probe
        if probe is not None and seq == probe.seq and (sender == probe.target or sender in probe.helpers):
            self._probe = None
            self._health.better()
        errand = self._errands.get(seq)
        if errand is not None and sender == errand.target:
            del self._errands[seq]
            self._send(errand.asker, Ack(errand.asker_seq))

    def nacked(self, sender: bytes, seq: int) -> None:
        """A helper is there, but had no answer."""
        if self._probe is not None and seq == self._probe.seq:
            self._probe.silent.discard(sender)

    def asked(self, now: float, sender: bytes, seq: int, target: bytes) -> None:
        """Another member asks for a ping."""
        if len(self._errands) >= ERRANDS_MOST or target == self._roster.me or self._roster.get(target) is None:
            return
        left_s = self._timing.probe_interval_s - self._timing.probe_timeout_s
        mine = self._next_seq()
        self._errands[mine] = _Errand(sender, seq, target, now + NACK_SHARE * left_s, now + 2 * left_s)
        self._send(target, Ping(mine))

    def stopped(self, now: float) -> None:
        """This process stood still: what was under way says nothing about others."""
        self._probe = None
        self._errands.clear()
        self._begin_at = now + self._draw.random() * self._timing.probe_interval_s

    def _begin(self, now: float) -> None:
        interval_s = self._timing.probe_interval_s * self._health.factor
        self._begin_at = now + interval_s
        target = self._next_target()
        if target == self._roster.me:
            return
        ask_at = now + self._timing.probe_timeout_s * self._health.factor
        self._probe = _Probe(target, self._next_seq(), ask_at, now + interval_s)
        self._send(target, Ping(self._probe.seq))

    def _next_target(self) -> bytes:
        """The next living member of this round, or ourselves where there is none.

        A round has every member once, in random order; one that comes in meanwhile is in the next.
        """
        for fresh in (False, True):
            if fresh:
                self._round = self._roster.others()
                self._draw.shuffle(self._round)
            while self._round:
                held = self._roster.get(self._round.pop())
                if held is not None and held.state.living:
                    return held.id
        return self._roster.me

    def _ask(self, probe: _Probe) -> None:
        probe.ask_at = math.inf
        others = [
            m.id for m in self._roster.all() if m.state is State.ALIVE and m.id not in (probe.target, self._roster.me)
        ]
        helpers = self._draw.sample(others, min(len(others), self._timing.indirect_checks))
        probe.helpers |= set(helpers)
        probe.silent |= set(helpers)
        for helper in helpers:
            self._send(helper, PingReq(probe.seq, probe.target))

    def _fail(self, now: float, probe: _Probe) -> None:
        """No answer at all. Helpers that kept silent too speak against us, not against the target (Lifeguard)."""
        self._probe = None
        self._health.worse(len(probe.silent) if probe.helpers else 1)
        self._roster.accuse(now, probe.target)

    def _next_seq(self) -> int:
        self._seq = (self._seq + 1) & 0xFFFFFFFF
        return self._seq
