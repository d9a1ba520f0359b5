"""One rank's process from start to end: join the ring, describe, load, follow; and the exit status it leaves with."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import NoReturn

from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import Engine, EngineError, Mortal
from ropeway.launch.fits import check_fits
from ropeway.launch.placement import Placement
from ropeway.launch.signals import Interruption
from ropeway.serving.vocabulary import open_vocabulary
from ropeway.stage.describe import describe_stage
from ropeway.stage.follower import follow
from ropeway.stage.stage import Stage
from ropeway.transport import Ring, RingConfig, RingEnded, RingStopped, join, tcp
from ropeway.transport.switched import Switched
from ropeway.types import SamplerAt
from ropeway.wire import ErrorCode, ProtocolError, Ready

EXIT_RING = 70
"""The ring ended in failure (wire.md 8)."""
EXIT_FAILED = 1
GRACE_S = 1.0
"""How long a rank whose ring has ended may go on, for a forward that cannot be interrupted."""


@dataclass(frozen=True, slots=True)
class RankSetup:
    """Where one rank stands: its place in the ring, every rank's address, and the shared key."""

    rank: int
    addresses: tuple[str, ...]
    key: bytes
    listen: str = ""
    listener: socket.socket | None = None
    bring_up_s: float = 60.0
    switched: Switched | None = None
    """How the others are reached where a node agent carries the ring; then the addresses are NODE:RANK."""


def ring_config(placement: Placement, setup: RankSetup) -> RingConfig:
    """The transport's configuration for a rank."""
    options, switched = placement.options, setup.switched
    return RingConfig(
        rank=setup.rank,
        layout=placement.layout,
        key=setup.key,
        addresses=setup.addresses,
        listen=setup.listen or setup.addresses[setup.rank],
        listener=setup.listener,
        bring_up_s=setup.bring_up_s,
        max_rows=max(options.context, options.chunk),
        connect=tcp.connect if switched is None else switched.connect,
        accepted=tcp.accepted if switched is None else switched.accepted,
    )


def say(rank: int, text: str) -> None:
    """A line for people on standard error, in one piece; lost where nobody can read it any more."""
    with contextlib.suppress(OSError):
        os.write(2, f"ropeway: rank {rank}: {text}\n".encode())


def run_stage(placement: Placement, setup: RankSetup, interruption: Interruption | None = None) -> int:
    """Be rank 1 or higher until the ring ends, or until an interruption, which the others hear of; the exit status."""
    rank = setup.rank
    who = f"rank {rank} ({setup.addresses[rank]})"

    def begun(ring: Ring) -> None:
        ring.on_end(lambda: leave_soon(rank, ring, interruption))
        if interruption is not None:
            interruption.cover(lambda: ring.fail(ErrorCode.PEER_LOST, f"{who} was interrupted"))

    placement.preload(rank)
    try:
        ring = join(ring_config(placement, setup), begun)
    except (ValueError, OSError) as error:
        say(rank, str(error))
        return EXIT_FAILED
    except RingEnded as error:
        return _ended(rank, error, interruption)
    try:
        _follow(ring, placement, rank, who)
        raise AssertionError("a stage follows until its ring ends")
    except RingEnded as error:
        return _ended(rank, error, interruption)
    except (EngineError, CheckpointError, MemoryError) as error:
        ring.fail(ErrorCode.ENGINE_FAILED, f"{who}: {error or 'out of memory'}")
        return _ended(rank, error)
    except ProtocolError as error:
        ring.fail(error.code, f"rank 0 sent a plan that {who} cannot run: {error.detail}", rank=0)
        return _ended(rank, error)
    except Exception as error:
        ring.fail(ErrorCode.ENGINE_FAILED, f"{who} has failed: {error!r}")
        raise
    finally:
        ring.close()


def _follow(ring: Ring, placement: Placement, rank: int, who: str) -> None:
    follow_with(placement.make_engine(rank), ring, placement, rank, who)


def follow_with(engine: Engine, ring: Ring, placement: Placement, rank: int, who: str, *, loaded: bool = False) -> None:
    """Describe, load unless that is done, and follow until the ring ends, which is raised."""
    if isinstance(engine, Mortal):
        engine.on_death(lambda text: ring.fail(ErrorCode.ENGINE_FAILED, f"{who}: {text}"))
    ring.describe(describe_stage(placement.layout, rank, engine))
    started = time.monotonic()
    if not loaded:
        check_fits(placement, rank, engine)
        engine.load()
    loaded_ms = round((time.monotonic() - started) * 1000)
    gc.freeze()  # what is loaded stays: no collection need walk through it in the middle of a round
    ring.ready(Ready(rank, loaded_ms, 0, engine.weights_bytes))
    follow(ring, Stage(engine), placement.layout, rank, _end_tokens(placement, rank))


def _end_tokens(placement: Placement, rank: int) -> frozenset[int]:
    """What ends a stream, for the rank that chooses tokens by itself; the others need not know."""
    if placement.layout.sampler is SamplerAt.FIRST or rank != placement.layout.head_rank:
        return frozenset()
    vocabulary = open_vocabulary(placement.path)
    try:
        return vocabulary.end_tokens
    finally:
        vocabulary.close()


def _ended(rank: int, error: Exception, interruption: Interruption | None = None) -> int:
    if isinstance(error, RingStopped):
        return 0
    if interruption is None or interruption.cause is None:
        say(rank, str(error))
    return EXIT_RING


def leave(status: int) -> NoReturn:
    """End the process now. Putting every object away takes an interpreter longer than a lost ring allows."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody can read it any more, or there is no room
            status = status or EXIT_FAILED
    os._exit(status)


def leave_soon(rank: int, ring: Ring, interruption: Interruption | None = None) -> None:
    """End the process within `GRACE_S` of a failed ring, even in the middle of a forward. For `Ring.on_end`."""

    def leave() -> None:
        time.sleep(GRACE_S)
        cause = None if interruption is None else interruption.cause
        say(rank, str(cause or ring.lost))
        os._exit(EXIT_RING if cause is None else cause.status)

    if ring.lost is not None:
        threading.Thread(target=leave, name="leave", daemon=True).start()
