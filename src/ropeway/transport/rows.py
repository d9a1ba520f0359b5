"""The two edges of the ring that end at this rank: what plans send over them, and how long that may take."""

from __future__ import annotations

from collections.abc import Callable

from ropeway.transport.config import RingConfig
from ropeway.transport.edges import frames_ahead, frames_back
from ropeway.transport.ending import failure
from ropeway.transport.figures import Waits
from ropeway.transport.inflow import Inflow
from ropeway.transport.life import Life
from ropeway.transport.outflow import Outflow
from ropeway.transport.reader import Reader
from ropeway.transport.roster import Roster
from ropeway.wire import Channel, ErrorCode, Fate, Kind, Plan, ProtocolError, Side, Tokens, decode_tokens


class Rows:
    """Rows in and rows out of one rank. `late` makes the fate of a round (given, with what is missing) that is late."""

    def __init__(self, config: RingConfig, roster: Roster, waits: Waits, late: Callable[[int, str], Fate]) -> None:
        self._config = config
        self._life: Life = roster.life
        self._late = late
        rows_in = roster.connection(Channel.ROWS, Side.ACCEPTOR)
        rows_out = roster.connection(Channel.ROWS, Side.DIALER)
        first_bytes = config.chunk * config.row_bytes
        self._before, self._next = rows_in.rank, rows_out.rank
        try:
            self.inflow = Inflow(rows_in, Reader(rows_in, self._life, roster.hear), self._life, waits, first_bytes)
            self.outflow = Outflow(rows_out, self._life, waits, first_bytes)
        except (OSError, ValueError):  # a socket is closed already, because the ring ended just as it was formed
            self._life.check()
            raise
        roster.before_closing(self.inflow.close)
        roster.before_closing(self.outflow.close)

    def expect(self, round_: int, plan: Plan) -> None:
        """A plan is known: its frames follow on both edges."""
        config = self._config
        ahead = frames_ahead(round_, plan, config.row_bytes)
        back = frames_back(round_, plan, config.row_bytes, config.layout.sampler)
        self.inflow.expect(ahead if config.rank else back)
        self.outflow.expect(back if config.rank == config.layout.world - 1 else ahead)

    def send_tokens(self, round_: int, tokens: Tokens) -> None:
        """The tokens of a round to rank 0. Raises as `Outflow.send`."""
        payload = tokens.encode()
        buffer = self.outflow.lend(len(payload))
        buffer[:] = payload
        self.outflow.send(Kind.TOKENS, round_, 0, 0, buffer)

    def receive_tokens(self, round_: int) -> Tokens:
        """The tokens of a round. Raises as `Inflow.take`."""
        payload = self.inflow.take(Kind.TOKENS, round_, 0)
        try:
            return decode_tokens(payload)
        except ProtocolError as error:
            self._life.blame(self._before, error)
            self._life.leave()
        finally:
            self.inflow.release()

    def tick(self, now: float) -> None:
        """Look for bytes that nobody reads; end the ring where the caller has waited too long inside a round."""
        self.inflow.nudge()
        # The nearer a rank is to the start of a round, the sooner it speaks; rank 0, which hears the dones, is first.
        limit_s = self._config.round_s * (1 + 0.05 * self._config.rank)
        waiting, since = self.inflow.waiting, self.outflow.waiting
        if waiting is not None and now - waiting[2] > limit_s:
            self._life.settle(self._late(waiting[0], f"part {waiting[1]}"))
        if since is not None and now - since > limit_s:
            text = f"{self._life.who(self._next)} has taken no rows for {limit_s:g} s"
            self._life.settle(failure(ErrorCode.DEADLINE, self._next, text))
