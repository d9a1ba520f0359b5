"""A stage's end of the control star: plans come, dones go, and a keep-alive is answered whatever the stage is doing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ropeway.transport.connection import Connection
from ropeway.transport.ending import failure
from ropeway.transport.life import Life
from ropeway.transport.mailbox import Mailbox
from ropeway.wire import SILENCE_S, Describe, Done, ErrorCode, Event, Plan, PlanHeard, ProtocolError, Ready, Silence
from ropeway.wire.link import Buffers


class Spoke:
    """The control connection to rank 0. `expect` judges a plan and takes note of its rows before a caller gets it."""

    def __init__(
        self,
        life: Life,
        connection: Connection,
        expect: Callable[[int, Plan], None],
        flush_soon: Callable[[], None],
    ) -> None:
        self._life = life
        self._connection = connection
        self._link = connection.link
        self._expect = expect
        self._flush_soon = flush_soon
        self._plans: Mailbox[tuple[int, Plan]] = Mailbox(life)
        self._silence = Silence()
        self._ready_at = math.inf

    def describe(self, describe: Describe) -> None:
        """Say what this stage can do. Raises RingEnded, or ProtocolError, our own mistake."""
        self._send(lambda: self._link.send_describe(describe))

    def ready(self, ready: Ready) -> None:
        """Say that this stage can take plans; from now on rank 0 must be heard. Raises as `describe`."""
        self._send(lambda: self._link.send_ready(ready))
        self._ready_at = time.monotonic()

    def next_plan(self) -> tuple[int, Plan]:
        """The next (round, plan) that is not a keep-alive. Raises RingEnded."""
        return self._plans.get()

    def done(self, round_: int, done: Done) -> None:
        """Say that a round has ended here. Raises as `describe`."""
        self._send(lambda: self._link.send_done(round_, done))

    def hear(self, _: Connection, event: Event) -> None:
        """What rank 0 says on the control connection. Raises ProtocolError (theirs)."""
        match event:
            case PlanHeard(_, plan) if plan.is_keepalive:
                self._answer()
            case PlanHeard(round_, plan):
                self._expect(round_, plan)
                self._plans.put((round_, plan))
            case _:
                pass

    def tick(self, now: float, heard_at: float) -> None:
        """End the ring when nothing at all has been heard for too long; `heard_at` is of all connections."""
        if now < self._ready_at:
            return
        # Nobody spoke while this stage loaded, however long that took.
        self._silence.heard(max(heard_at, self._ready_at))
        if self._silence.due(now):
            text = f"{self._life.who(0)} has said nothing for {SILENCE_S:g} s"
            self._life.settle(failure(ErrorCode.SILENCE, 0, text))

    def _answer(self) -> None:
        """Answer a keep-alive. This is the watch's thread, which ends the ring and so must not wait for its end."""
        try:
            if not self._connection.send(self._link.send_alive):
                self._flush_soon()
        except OSError as error:
            self._life.blame(0, error)
        except ProtocolError:
            if not self._life.ending:  # the link refuses what would follow our fate
                raise

    def _send(self, frame: Callable[[], Buffers]) -> None:
        self._life.check()
        try:
            if not self._connection.send(frame):
                self._flush_soon()
        except OSError as error:
            self._life.blame(0, error)
            self._life.leave()
        except ProtocolError:
            if self._life.ending:  # the link refuses what would follow our fate
                self._life.leave()
            raise
