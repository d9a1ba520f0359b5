"""Whom a member turns to unasked: gossip, push-pull, dead ones that may be back, and the door while it is alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ropeway.cluster.swim.exchange import Exchange
from ropeway.cluster.swim.gossip import GossipQueue
from ropeway.cluster.swim.post import Post
from ropeway.cluster.swim.records import encode_record, stated
from ropeway.cluster.swim.roster import Roster
from ropeway.cluster.swim.timing import Timing
from ropeway.cluster.swim.values import Draws, State, Statement


class Outreach:
    """Four timers."""

    def __init__(
        self,
        now: float,
        roster: Roster,
        queue: GossipQueue,
        post: Post,
        exchange: Exchange,
        timing: Timing,
        draw: Draws,
    ) -> None:
        self._roster = roster
        self._queue = queue
        self._post = post
        self._exchange = exchange
        self._timing = timing
        self._draw = draw
        self._gossip_at = now
        self._join_at = math.inf
        self._sync_at = now + draw.random() * timing.push_pull_interval_s
        self._rejoin_at = now + draw.random() * timing.rejoin_interval_s

    def next_at(self, leaving: bool) -> float:
        """When `tick` has something to do; who leaves only gossips."""
        gossip_at = self._gossip_at if self._queue and self._roster.living > 1 else math.inf
        return gossip_at if leaving else min(gossip_at, self._join_at, self._sync_at, self._rejoin_at)

    def join(self, now: float) -> None:
        """Knock at the contacts' doors now."""
        self._join_at = now

    def sync_soon(self, now: float) -> None:
        """There was something to learn; there may be more."""
        self._sync_at = min(self._sync_at, now + (1 + self._draw.random()) * self._timing.probe_interval_s)

    def sync_after_news(self, now: float) -> None:
        """Gossip reaches nearly all, and whoever it has missed need not wait for push-pull's long interval."""
        soon_s = (0.5 + self._draw.random()) * self._timing.push_pull_interval_s / 4
        self._sync_at = min(self._sync_at, now + soon_s)

    def tick(self, now: float, own: Statement) -> None:
        """Do what is due. `own` is our last statement."""
        if now >= self._join_at:
            self._knock(now, own)
        if now >= self._sync_at:
            self._sync_at = now + self._timing.push_pull_s(self._roster.living)
            self._begin(self._roster.others())
        if now >= self._rejoin_at:
            self._rejoin_at = now + (0.5 + self._draw.random()) * self._timing.rejoin_interval_s
            self._begin([member.id for member in self._roster.all() if member.state is State.DEAD])
            if self._roster.living == 1 and self._post.contacts:
                self._join_at = min(self._join_at, now)
        self.gossip(now)

    def gossip(self, now: float) -> None:
        """Tell a few members the news, the recently dead too: they may only seem so."""
        if now < self._gossip_at or not self._queue:
            return
        self._gossip_at = now + self._timing.gossip_interval_s
        since = now - self._timing.gossip_to_dead_s
        fresh = [m.id for m in self._roster.all() if m.state is State.DEAD and m.since >= since]
        for member in self._pick(self._roster.others() + fresh, self._timing.gossip_nodes):
            self._post.gossip(member)

    def _knock(self, now: float, own: Statement) -> None:
        """Ask all contacts to let us in, until we know anybody."""
        if self._roster.living > 1:
            self._join_at = math.inf
            return
        self._join_at = now + self._timing.probe_interval_s
        for contact in self._post.contacts:
            self._exchange.begin(contact, joining=[encode_record(stated(own))])

    def _begin(self, members: list[bytes]) -> None:
        for member in self._pick(members, 1):
            self._exchange.begin(member)

    def _pick(self, members: Iterable[bytes], most: int) -> list[bytes]:
        choice = list(members)
        return self._draw.sample(choice, min(most, len(choice)))
