"""The ring as one rank sees it: join it, exchange plans, rows and dones, and end it, once and for every rank.

Every call that waits raises RingLost or RingStopped within milliseconds of the ring's end. Knows nothing of engines,
and nothing of TCP.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from ropeway.transport.config import RingConfig
from ropeway.transport.connection import Connection
from ropeway.transport.ending import RingEnded, RingLost, RingStopped, ended, failure
from ropeway.transport.figures import Traffic, Waits
from ropeway.transport.hub import Hub
from ropeway.transport.roster import Roster
from ropeway.transport.rows import Rows
from ropeway.transport.spoke import Spoke
from ropeway.types import Layout
from ropeway.wire import (
    Channel,
    Describe,
    Done,
    ErrorCode,
    Event,
    Fate,
    FateKind,
    Kind,
    Plan,
    ProtocolError,
    Ready,
    Side,
    Tokens,
)

__all__ = ["Ring", "RingConfig", "RingEnded", "RingLost", "RingStopped", "Traffic", "Waits", "join"]

LOAD_S: Final = 1800.0
"""How long every stage may take to load its weights."""
CLOSE_S: Final = 2.0
_ROWS: Final = Kind.ROWS
"""Looked up once: an enum's member costs as much as a lock."""
_ALONE: Final = "no rows cross in a ring of one, nor before it is whole"


class Ring:
    """One rank's place in a ring; made by `join`, ended by `stop` or `fail`, closed by `close` or as a context manager.

    One thread computes and calls the methods for plans and rows. `stop`, `fail`, `check` and the figures are for any
    thread. Methods named for rank 0 or for a stage may be called only there.
    """

    def __init__(self, config: RingConfig) -> None:
        self._config = config
        self._rank = config.rank
        self._world = config.layout.world
        self._roster = Roster(config, self._hear, self._tick)
        self._life = self._roster.life
        self._hub = Hub(self._roster, self._world, config.round_s)
        self._spoke: Spoke | None = None
        self._rows: Rows | None = None
        self.waits = Waits()
        """How long the calls for rows have waited, all together."""
        self._roster.watch.start()

    @property
    def rank(self) -> int:
        """Our rank."""
        return self._rank

    @property
    def layout(self) -> Layout:
        """The layout that every rank has proved to share."""
        return self._config.layout

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self._world

    def _form(self) -> None:
        """Bring-up, and what stands on the connections that it made."""
        self._roster.form()
        if self._world == 1:
            return
        try:
            self._rows = Rows(self._config, self._roster, self.waits, self._late)
            if self._rank:
                control = self._roster.connection(Channel.CONTROL, Side.DIALER)
                self._spoke = Spoke(self._life, control, self._expect, self._roster.watch.wake)
        except (OSError, ValueError):
            self._life.check()  # where the ring has ended already its sockets are closed, and that is no news
            raise

    # Boot

    def describe(self, describe: Describe) -> None:
        """A stage says what it can do. Raises RingEnded, or ProtocolError, our own mistake."""
        self._stage.describe(describe)

    def ready(self, ready: Ready) -> None:
        """A stage says that it is loaded; from now on rank 0 has to be heard every 6 s. Raises as `describe`."""
        self._stage.ready(ready)

    def descriptions(self, limit_s: float | None = None) -> list[Describe]:
        """Rank 0: every stage's description, by rank. Raises RingEnded, `deadline` after `limit_s` (or bring_up_s)."""
        return self._hub.descriptions(self._config.bring_up_s if limit_s is None else limit_s)

    def readies(self, limit_s: float = LOAD_S) -> list[Ready]:
        """Rank 0: every stage's ready, by rank. Raises RingEnded, with `deadline` after `limit_s`."""
        return self._hub.readies(limit_s)

    # Rounds

    def send_plan(self, plan: Plan) -> int:
        """Rank 0: send a plan to every stage; gives its round, which the ring counts because keep-alives take some.

        Raises RingEnded, or ProtocolError, our own mistake.
        """
        return self._hub.send_plan(plan, self._expect)

    def next_plan(self) -> tuple[int, Plan]:
        """A stage: the next (round, plan), however long it takes; keep-alives are answered inside. Raises RingEnded."""
        return self._stage.next_plan()

    def done(self, round_: int, done: Done) -> None:
        """A stage has ended a round. Raises as `describe`."""
        self._stage.done(round_, done)

    def next_done(self) -> tuple[int, int, Done]:
        """Rank 0: the next (rank, round, done) of any stage. Raises RingEnded, with `deadline` after round_s."""
        return self._hub.next_done()

    def dones(self) -> list[tuple[int, int, Done]]:
        """Rank 0: every (rank, round, done) that has come, without waiting. Raises RingEnded."""
        return self._hub.dones()

    # Rows

    def send_buffer(self, payload_bytes: int) -> memoryview:
        """Memory for the next rows that the plans imply; waits while both buffers are in flight.

        Raises RingEnded, or ProtocolError `rows_length` where the plans imply another size.
        """
        assert self._rows is not None, _ALONE
        return self._rows.outflow.lend(payload_bytes)

    def send_rows(self, round_: int, part: int, rows: int, buffer: memoryview) -> None:
        """Send a part's rows to the next rank (from the last one: what returns), out of the buffer that was lent first.

        Does not wait for the peer. Raises as `send_buffer`.
        """
        assert self._rows is not None, _ALONE
        self._rows.outflow.send(_ROWS, round_, part, rows, buffer)

    def receive_rows(self, round_: int, part: int) -> memoryview:
        """The next part's rows from the rank before (on rank 0: what returns), borrowed until `release_rows`.

        Raises RingEnded, with `deadline` after round_s.
        """
        assert self._rows is not None, _ALONE
        return self._rows.inflow.take(_ROWS, round_, part)

    def release_rows(self) -> None:
        """The rows that were received last are not used any more."""
        assert self._rows is not None, _ALONE
        self._rows.inflow.release()

    def send_tokens(self, round_: int, tokens: Tokens) -> None:
        """The last rank with `sampler: last`: a round's tokens to rank 0. Raises as `send_rows`."""
        assert self._rows is not None, _ALONE
        self._rows.send_tokens(round_, tokens)

    def receive_tokens(self, round_: int) -> Tokens:
        """Rank 0 with `sampler: last`: a round's tokens, one a stream that returns a row. Raises as `receive_rows`."""
        assert self._rows is not None, _ALONE
        return self._rows.receive_tokens(round_)

    # Figures

    def traffic(self) -> Traffic:
        """Bytes sent and received so far."""
        return Traffic(*self._roster.traffic())

    # The end

    def check(self) -> None:
        """Raise RingLost or RingStopped once the ring has ended."""
        self._life.check()

    def on_end(self, call: Callable[[], None]) -> None:
        """Call `call` once, from a thread of the ring, when it has ended and the others have been told (or at once)."""
        self._roster.on_end(call)

    @property
    def end(self) -> RingEnded | None:
        """Why the ring has ended; None while it lives."""
        fate = self._life.fate
        return ended(fate) if fate is not None and self._life.over else None

    @property
    def lost(self) -> RingLost | None:
        """The failure that ended the ring; None while it lives and after a stop."""
        end = self.end
        return end if isinstance(end, RingLost) else None

    @property
    def draining(self) -> bool:
        """A rank has asked that the ring end soon, in good order."""
        return self._roster.draining

    def drain(self, text: str = "") -> None:
        """Ask that the ring end soon, in good order: a stage asks rank 0, rank 0 asks every stage. Raises RingEnded."""
        self._roster.tell(Fate(FateKind.DRAIN, ErrorCode.NONE, self._rank, text))

    def stop(self) -> None:
        """End the ring in good order on every rank. Does nothing once it has ended."""
        self._life.settle(
            Fate(FateKind.STOP, ErrorCode.NONE, self._rank, f"{self._life.who(self._rank)} has stopped the ring")
        )

    def fail(self, code: ErrorCode, text: str, rank: int | None = None) -> None:
        """End the ring in failure on every rank; it began at `rank` (or ours). Does nothing once it has ended."""
        self._life.settle(failure(code, self._rank if rank is None else rank, text))

    def close(self) -> None:
        """Free sockets and threads once the last words have left. A ring that still lives fails on the other ranks."""
        self.fail(ErrorCode.PEER_LOST, f"{self._life.who(self._rank)} has left without stopping the ring")
        self._roster.close(CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.fail(ErrorCode.ENGINE_FAILED, f"{self._life.who(self._rank)} has failed: {error!r}")
        self.close()

    # Inside

    @property
    def _stage(self) -> Spoke:
        assert self._spoke is not None, "only a stage of a ring that is whole can do this"
        return self._spoke

    def _hear(self, connection: Connection, event: Event) -> None:
        if self._spoke is not None:
            self._spoke.hear(connection, event)
        elif self._rank == 0:
            self._hub.hear(connection, event)

    def _expect(self, round_: int, plan: Plan) -> None:
        """Judge a plan's size, and take note of its rows. Raises ProtocolError `over_capacity`."""
        most = self._config.max_rows
        if plan.rows > most:
            raise ProtocolError(ErrorCode.OVER_CAPACITY, f"a plan of {plan.rows} rows, at most {most}")
        if self._rows is not None:
            self._rows.expect(round_, plan)

    def _tick(self, now: float) -> None:
        if self._rank == 0:
            self._hub.tick(now)
        elif self._spoke is not None:
            self._spoke.tick(now, self._roster.heard_at())
        if self._rows is not None:
            self._rows.tick(now)

    def _late(self, round_: int, what: str) -> Fate:
        """The fate of a round whose rows did not come; a stage cannot know which rank before it is to blame."""
        if self._rank == 0:
            return self._hub.late(round_, what)
        who, limit_s = self._life.who(self._rank - 1), self._config.round_s
        text = f"{who} or a rank before it is late: {what} of round {round_} did not come within {limit_s:g} s"
        return failure(ErrorCode.DEADLINE, self._rank - 1, text)


def join(config: RingConfig, begun: Callable[[Ring], None] = lambda _: None) -> Ring:
    """Take our place in the ring and wait until every connection that we need has been proved.

    `begun` gets the ring before bring-up, for whoever may have to end it earlier than its deadline. Raises RingLost (a
    rank is missing at the deadline, refuses us, or was lost meanwhile), RingStopped, and ValueError or OSError where we
    cannot listen.
    """
    ring = Ring(config)
    try:
        begun(ring)
        ring._form()
    except BaseException:
        ring.close()
        raise
    return ring
