"""The connections of one ring: how they come together in any start order, and how all of them end.

A stage dials rank 0 first and the next rank only then, so that rank 0 alone decides which of two processes with the
same rank is in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from ropeway.transport import tcp
from ropeway.transport.config import RingConfig
from ropeway.transport.connection import Connection
from ropeway.transport.dialing import dial
from ropeway.transport.door import Door
from ropeway.transport.ending import failure, printable
from ropeway.transport.life import Life
from ropeway.transport.watch import Watch
from ropeway.wire import Channel, ErrorCode, Event, Fate, FateHeard, FateKind, Hello, ProtocolError, Side

LEAVE_S: Final = 1.0
"""How long the threads of a ring that has ended may take to leave its sockets."""

Place = tuple[Channel, Side, int]
"""Where a connection belongs: its channel, our side of it, and the rank across."""


class Roster:
    """All connections of this rank. `hear` gets every event but fates, `tick` the time ten times a second."""

    def __init__(
        self, config: RingConfig, hear: Callable[[Connection, Event], None], tick: Callable[[float], None]
    ) -> None:
        self._config = config
        self._hear_event = hear
        rank, world = config.rank, config.layout.world
        self._next = (rank + 1) % world
        self._needed = _places(rank, world)
        self._lock = threading.Lock()
        self._connections: dict[Place, Connection] = {}
        self._changed = threading.Event()
        self._leavers: list[Callable[[float], None]] = []
        self._closed = False
        self._listener = config.listener
        self._door: Door | None = None
        self.draining = False
        """A rank has asked to end the ring soon, in good order."""
        self._callbacks: list[Callable[[], None]] = []
        self.life = Life(rank, config.addresses, self._announce)
        self.life.on_end(self._changed.set)
        self.watch = Watch(self.life, self.hear, tick, self._finish)

    # Bring-up

    def form(self) -> None:
        """Listen, dial and wait until every connection is there. Raises RingEnded, and as `tcp.listen` does."""
        config, life = self._config, self.life
        if not self._needed:
            return
        deadline = time.monotonic() + config.bring_up_s
        if self._listener is None:
            self._listener = tcp.listen(config.listen or config.addresses[config.rank])
        tcp.check_listener(self._listener)
        self._door = Door(config, self._listener, self._judge, self._attach)
        if config.rank:
            self._attach_own(dial(config, Channel.CONTROL, 0, life, deadline, self._absent))
        self._attach_own(dial(config, Channel.ROWS, self._next, life, deadline, self._absent))
        while missing := self._missing():
            self._changed.clear()
            if missing == self._missing() and not self._changed.wait(max(deadline - time.monotonic(), 0.0)):
                life.settle(self._absent(min(place[2] for place in missing), "did not join"))
            life.check()
        life.check()

    def connection(self, channel: Channel, side: Side) -> Connection:
        """The one connection of a channel on which we are `side` (a whole ring; not for rank 0's control)."""
        return next(c for place, c in self._connections.items() if place[:2] == (channel, side))

    def stages(self) -> list[Connection]:
        """On rank 0 the control connections that are there, by rank."""
        with self._lock:
            there = sorted(self._connections.items(), key=lambda item: item[0][2])
        return [connection for place, connection in there if place[:2] == (Channel.CONTROL, Side.ACCEPTOR)]

    def _missing(self) -> set[Place]:
        with self._lock:
            return self._needed - self._connections.keys()

    def _absent(self, rank: int, how: str) -> Fate:
        """The fate for a rank that is missing at the deadline of bring-up."""
        text = f"bring-up: {self.life.who(rank)} {how} within {self._config.bring_up_s:g} s"
        if self._door is not None and self._door.refused:
            text = f"{text} (refused meanwhile: {self._door.refused})"
        return failure(ErrorCode.DEADLINE, rank, text)

    def _judge(self, hello: Hello) -> None:
        """Judge a dialer's hello further than the link does. Raises ProtocolError `duplicate_rank`."""
        if (hello.channel, Side.ACCEPTOR, hello.rank) in self._connections:
            raise ProtocolError(
                ErrorCode.DUPLICATE_RANK, f"rank {hello.rank} is connected already on {hello.channel.label}"
            )

    def _attach(self, connection: Connection) -> None:
        """Take in a proved connection. Raises ProtocolError `duplicate_rank`, or `peer_lost` in a ring that ended."""
        place = connection.channel, connection.side, connection.rank
        with self._lock:
            if self._closed:
                raise ProtocolError(ErrorCode.PEER_LOST, "this ring has ended")
            if place in self._connections:
                raise ProtocolError(ErrorCode.DUPLICATE_RANK, f"rank {connection.rank} is connected already")
            self._connections[place] = connection
        self.watch.add(connection)
        if self.life.fate is not None:
            connection.say(self.life.fate)
        self._changed.set()

    def _attach_own(self, connection: Connection) -> None:
        try:
            self._attach(connection)
        except ProtocolError:
            connection.close()
            self.life.leave()

    # Life

    def hear(self, connection: Connection, event: Event) -> None:
        """A fate is for all of the ring; the rest is for the owner. Raises ProtocolError (theirs)."""
        if not isinstance(event, FateHeard):
            self._hear_event(connection, event)
        elif event.fate.what is FateKind.DRAIN:
            self.draining = True
        else:
            fate = event.fate
            self.life.settle(Fate(fate.what, fate.error, fate.rank, printable(fate.text)))

    def heard_at(self, rank: int | None = None) -> float:
        """When anything was last heard, of `rank` or of anybody (time.monotonic)."""
        with self._lock:
            return max(c.heard_at for c in self._connections.values() if rank is None or c.rank == rank)

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received on all connections."""
        with self._lock:
            there = list(self._connections.values())
        return sum(c.outbox.sent_bytes for c in there), sum(c.received_bytes for c in there)

    def tell(self, fate: Fate) -> None:
        """Send a fate that does not end the ring (a drain) over our control connections. Raises RingEnded."""
        self.life.check()
        with self._lock:
            there = [c for place, c in self._connections.items() if place[0] is Channel.CONTROL]
        for connection in there:
            try:
                connection.send(partial(connection.link.send_fate, fate))
            except OSError as error:
                self.life.blame(connection.rank, error)
            except ProtocolError:
                if self.life.ending:  # the link refuses what would follow our last word
                    self.life.leave()
                raise
        self.watch.wake()

    def before_closing(self, leave: Callable[[float], None]) -> None:
        """`leave` (given seconds) is called after the ring's end and waits until nobody uses a socket."""
        self._leavers.append(leave)

    def on_end(self, call: Callable[[], None]) -> None:
        """Call `call` when the ring has ended and the others have been told."""
        with self._lock:
            late = self._closed
            if not late:
                self._callbacks.append(call)
        if late:
            call()

    def close(self, timeout_s: float) -> None:
        """Wait until the ring, which has ended, is closed. A listener that was handed over stays open."""
        self.watch.join(timeout_s)
        if self._door is not None:
            self._door.close()
        if self._listener is not None and self._listener is not self._config.listener:
            self._listener.close()

    def _announce(self, fate: Fate) -> None:
        with self._lock:
            there = list(self._connections.values())
        for connection in there:
            connection.say(fate)

    def _finish(self) -> None:
        """The watch's last act: the others have been told and have had time to hear it."""
        with self._lock:
            self._closed = True
        try:
            for call in self._callbacks:
                call()
        finally:
            for leave in self._leavers:
                leave(LEAVE_S)
            for connection in self._connections.values():
                connection.close()


def _places(rank: int, world: int) -> set[Place]:
    """The connections that a rank has in a whole ring."""
    if world == 1:
        return set()
    control: set[Place] = {(Channel.CONTROL, Side.ACCEPTOR, stage) for stage in range(1, world)}
    if rank:
        control = {(Channel.CONTROL, Side.DIALER, 0)}
    following, before = (rank + 1) % world, (rank - 1) % world
    return control | {(Channel.ROWS, Side.DIALER, following), (Channel.ROWS, Side.ACCEPTOR, before)}
