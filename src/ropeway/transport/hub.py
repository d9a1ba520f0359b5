"""Rank 0's end of the control star: what the stages say, the plans that they get, keep-alive and silence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ropeway.transport.connection import Connection
from ropeway.transport.ending import failure
from ropeway.transport.mailbox import Mailbox
from ropeway.transport.roster import Roster
from ropeway.wire import (
    SILENCE_S,
    Describe,
    Described,
    Done,
    DoneHeard,
    ErrorCode,
    Event,
    Fate,
    KeepAlive,
    Plan,
    ProtocolError,
    Ready,
    ReadyHeard,
    Silence,
)

T = TypeVar("T")


class Hub:
    """Rank 0's part in a ring of `world` ranks, over the control connections of `roster`."""

    def __init__(self, roster: Roster, world: int, round_s: float) -> None:
        self._roster = roster
        self._life = life = roster.life
        self._world = world
        self._round_s = round_s
        self._lock = threading.Lock()
        self._round = 0
        self._described: Mailbox[tuple[int, Describe]] = Mailbox(life)
        self._ready: Mailbox[tuple[int, Ready]] = Mailbox(life)
        self._done: Mailbox[tuple[int, int, Done]] = Mailbox(life)
        self._last_done = dict.fromkeys(range(1, world), 0)
        self._keepalives: dict[int, KeepAlive] = {}
        self._silences: dict[int, Silence] = {}
        self._nothing = Plan().encode()

    def descriptions(self, limit_s: float) -> list[Describe]:
        """Every stage's description, by rank. Raises RingEnded, with `deadline` after `limit_s`."""
        return self._collect(self._described, limit_s, "describe itself")

    def readies(self, limit_s: float) -> list[Ready]:
        """Every stage's ready, by rank. Raises RingEnded, with `deadline` after `limit_s`."""
        return self._collect(self._ready, limit_s, "get ready")

    def send_plan(self, plan: Plan, expect: Callable[[int, Plan], None]) -> int:
        """Send a plan to every stage under the next round number, which is given; `expect` is told before it leaves.

        Raises RingEnded, or ProtocolError, our own mistake.
        """
        payload = plan.encode()
        self._life.check()
        with self._lock:
            expect(self._round + 1, plan)
            self._round += 1
            for connection in self._roster.stages():
                self._send(connection, payload)
            return self._round

    def next_done(self) -> tuple[int, int, Done]:
        """The next (rank, round, done) of any stage. Raises RingEnded, with `deadline` when none comes."""
        return self._done.get_within(self._round_s, lambda: self.late(self._round, "a done frame"))

    def dones(self) -> list[tuple[int, int, Done]]:
        """Every (rank, round, done) that is there now. Raises RingEnded."""
        return self._done.get_all()

    def hear(self, connection: Connection, event: Event) -> None:
        """What a stage says on its control connection."""
        rank = connection.rank
        match event:
            case Described(describe):
                self._described.put((rank, describe))
            case ReadyHeard(ready):
                now = time.monotonic()
                self._silences[rank] = Silence()
                self._keepalives[rank] = KeepAlive()
                self._keepalives[rank].sent(now)
                self._ready.put((rank, ready))
            case DoneHeard(round_, done) if round_ > self._last_done[rank]:
                self._last_done[rank] = round_
                self._done.put((rank, round_, done))
            case _:
                pass  # an answer to a keep-alive: it has been heard, and that is all

    def tick(self, now: float) -> None:
        """Send keep-alives that are due; end the ring where a stage has been silent."""
        for rank, silence in self._silences.items():
            silence.heard(self._roster.heard_at(rank))
            if silence.due(now):
                text = f"{self._life.who(rank)} has said nothing for {SILENCE_S:g} s"
                self._life.settle(failure(ErrorCode.SILENCE, rank, text))
                return
        with self._lock:
            due = [rank for rank, keepalive in self._keepalives.items() if keepalive.due(now)]
            if due:
                self._round += 1
            for connection in self._roster.stages():
                if connection.rank in due:
                    self._send(connection, self._nothing)

    def late(self, round_: int, what: str) -> Fate:
        """The fate for a round that took too long: it began at the first rank that has not ended the round."""
        rank = next((rank for rank, last in self._last_done.items() if last < round_), self._world - 1)
        text = f"{what} of round {round_} did not come within {self._round_s:g} s, and {self._life.who(rank)} is late"
        return failure(ErrorCode.DEADLINE, rank, text)

    def _send(self, connection: Connection, payload: bytes) -> None:
        try:
            if not connection.send(lambda: connection.link.send_plan(self._round, payload)):
                self._roster.watch.wake()
        except OSError as error:
            self._life.blame(connection.rank, error)
        except ProtocolError:
            if self._life.ending:  # the link refuses what would follow our fate
                self._life.leave()
            raise
        if connection.rank in self._keepalives:
            self._keepalives[connection.rank].sent(time.monotonic())

    def _collect(self, mailbox: Mailbox[tuple[int, T]], limit_s: float, what: str) -> list[T]:
        deadline = time.monotonic() + limit_s
        got: dict[int, T] = {}

        def late() -> Fate:
            rank = next(rank for rank in range(1, self._world) if rank not in got)
            return failure(ErrorCode.DEADLINE, rank, f"{self._life.who(rank)} did not {what} within {limit_s:g} s")

        while len(got) < self._world - 1:
            rank, value = mailbox.get_within(deadline - time.monotonic(), late)
            got[rank] = value
        return [got[rank] for rank in sorted(got)]
