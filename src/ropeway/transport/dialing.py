"""The dialer's side of bring-up: reach a rank, exchange hello and proof, tell a refusal from a rank that is not up."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time
from collections.abc import Callable
from typing import Final

from ropeway.transport.config import RingConfig
from ropeway.transport.connection import Connection
from ropeway.transport.ending import failure, printable
from ropeway.transport.life import Life
from ropeway.wire import Channel, ErrorCode, Fate, FateHeard, FateKind, HelloDone, Link, ProtocolError, Side

log = logging.getLogger("ropeway.transport")

RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 0.5
_FINAL: Final = (ErrorCode.DUPLICATE_RANK, ErrorCode.WRONG_RANK, ErrorCode.WRONG_CHANNEL)
"""Refusals by which it is surely we who are wrong."""
LOOK_S: Final = 0.1
"""How often a dialer looks whether the ring has ended meanwhile."""


def dial(
    config: RingConfig, channel: Channel, rank: int, life: Life, deadline: float, absent: Callable[[int, str], Fate]
) -> Connection:
    """A proved connection to `rank`, tried again until `deadline` (time.monotonic) while it is not up.

    Ends the ring, and raises RingLost, at once where rank 0 refuses us or we refuse the other side, else at the
    deadline with the fate that `absent` makes of the rank and the last reason. Another rank that refuses us may be the
    one that is wrong: rank 0 will tell it so, and the right one can still come.
    """
    address, pause, why = config.addresses[rank], RETRY_S, "not tried yet"
    while True:
        life.check()
        left = deadline - time.monotonic()
        if left <= 0:
            life.settle(absent(rank, f"did not answer ({why})"))
            life.leave()
        try:
            sock = config.connect(address, left)
        except OSError as error:
            why = error.strerror or str(error)
        else:
            try:
                return _greet(config, sock, channel, rank, life, deadline)
            except (EOFError, OSError) as error:
                sock.close()
                if isinstance(error, _Refused) and why != str(error):
                    log.warning("bring-up: %s: %s", life.who(rank), error)
                why = str(error)
            except BaseException:
                sock.close()
                raise
        log.debug("rank %d at %s does not answer yet: %s", rank, address, why)
        life.wait(min(pause, max(deadline - time.monotonic(), 0.0)))
        pause = min(2 * pause, LONGEST_RETRY_S)


class _Refused(ConnectionError):
    """A rank refuses us, and another try may help."""


def _greet(
    config: RingConfig, sock: socket.socket, channel: Channel, rank: int, life: Life, deadline: float
) -> Connection:
    """Hello and proof over a fresh socket. Raises EOFError or OSError where another try may help, else RingEnded."""
    link = Link(Side.DIALER, channel, config.hello(channel), config.key)
    sock.setblocking(False)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    try:
        while True:
            for frame in link.outgoing():
                sock.sendall(frame)  # some 250 bytes in all: they fit into any socket's buffer
            if not poller.poll(LOOK_S * 1e3):
                life.check()
                if time.monotonic() > deadline:
                    raise TimeoutError("it accepted the connection and then said nothing")
                continue
            count = sock.recv_into(link.buffer())
            if not count:
                raise EOFError("it closed the connection during the hello")
            match link.received(count):
                case HelloDone(peer):
                    return Connection(sock, link, peer.rank, channel, Side.DIALER, config.addresses[rank])
                case FateHeard(fate):
                    if channel is Channel.ROWS and fate.error not in _FINAL:
                        raise _Refused(f"it refused us: {fate.error.label}: {printable(fate.text)}")
                    life.settle(_refused(config, rank, life, fate))
                    life.leave()
                case _:
                    pass
    except ProtocolError as error:
        log.error("bring-up: %s answers wrongly: %s", life.who(rank), error)
        fate = failure(error.code, rank, f"bring-up: {life.who(rank)} answered the hello wrongly: {error.detail}")
        with contextlib.suppress(OSError, ProtocolError):
            sock.sendmsg(link.send_fate(fate))
            sock.shutdown(socket.SHUT_WR)
        life.settle(fate)
        life.leave()


def _refused(config: RingConfig, rank: int, life: Life, fate: Fate) -> Fate:
    """What a fate in reply to our hello means: we are refused, and another try would be too."""
    text = printable(fate.text) or fate.error.label
    if fate.what is FateKind.STOP:
        return Fate(FateKind.STOP, fate.error, fate.rank, text)
    return Fate(FateKind.FAIL, fate.error, config.rank, f"{life.who(rank)} refused rank {config.rank}: {text}")
