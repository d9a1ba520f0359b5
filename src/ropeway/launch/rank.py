"""One rank's process from start to end: join the ring, describe, load, follow; and the exit status it leaves with.

`python -m ropeway.launch.rank` is how rank 0 starts a rank on its own machine: it reads one JSON line with the setup
(the key among it, so that no argument list shows it) and takes the end of its standard input for its parent's death.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass

from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import EngineError
from ropeway.engines.llamacpp.engine import LlamaCppEngine
from ropeway.engines.llamacpp.vocabulary import Vocabulary
from ropeway.launch.placement import Options, Placement, place
from ropeway.stage.describe import describe_stage
from ropeway.stage.follower import follow
from ropeway.stage.stage import Stage
from ropeway.transport import Ring, RingConfig, RingEnded, RingStopped, join
from ropeway.types import SamplerAt
from ropeway.wire import ErrorCode, ProtocolError, Ready

EXIT_RING = 70
"""The ring ended in failure (wire.md 8)."""
EXIT_FAILED = 1
GRACE_S = 1.0
"""How long a rank whose ring has ended may go on, for a forward that cannot be interrupted."""
ORPHAN_S = 5.0
"""How long a child may outlive its parent's pipe."""


@dataclass(frozen=True, slots=True)
class RankSetup:
    """Where one rank stands: its place in the ring, every rank's address, and the shared key."""

    rank: int
    addresses: tuple[str, ...]
    key: bytes
    listen: str = ""
    listener: socket.socket | None = None
    bring_up_s: float = 60.0


def ring_config(placement: Placement, setup: RankSetup) -> RingConfig:
    """The transport's configuration for a rank."""
    options = placement.options
    return RingConfig(
        rank=setup.rank,
        layout=placement.layout,
        key=setup.key,
        addresses=setup.addresses,
        listen=setup.listen or setup.addresses[setup.rank],
        listener=setup.listener,
        bring_up_s=setup.bring_up_s,
        max_rows=max(options.context, options.chunk),
    )


def say(rank: int, text: str) -> None:
    """A line for people on standard error."""
    sys.stderr.write(f"ropeway: rank {rank}: {text}\n")
    sys.stderr.flush()


def run_stage(placement: Placement, setup: RankSetup) -> int:
    """Be rank 1 or higher until the ring ends; gives the exit status."""
    rank, layout = setup.rank, placement.layout
    try:
        engine = LlamaCppEngine(placement.engine_config(rank))
        ring = join(ring_config(placement, setup))
    except (EngineError, CheckpointError, ValueError, OSError) as error:
        say(rank, str(error))
        return EXIT_FAILED
    except RingEnded as error:
        return _ended(rank, error)
    ring.on_end(lambda: leave_soon(rank, ring))
    try:
        ring.describe(describe_stage(layout, rank, engine))
        started = time.monotonic()
        engine.load()
        loaded_ms = round((time.monotonic() - started) * 1000)
        ring.ready(Ready(rank, loaded_ms, 0, engine.weights_bytes))
        follow(ring, Stage(engine), layout, rank, _end_tokens(placement, rank))
        raise AssertionError("a stage follows until its ring ends")
    except RingEnded as error:
        return _ended(rank, error)
    except (EngineError, CheckpointError) as error:
        ring.fail(ErrorCode.ENGINE_FAILED, f"rank {rank}: {error}")
        return _ended(rank, error)
    except ProtocolError as error:
        ring.fail(error.code, f"rank 0 sent a plan that rank {rank} cannot run: {error.detail}", rank=0)
        return _ended(rank, error)
    finally:
        ring.close()


def _end_tokens(placement: Placement, rank: int) -> frozenset[int]:
    """What ends a stream, for the rank that chooses tokens by itself; the others need not know."""
    if placement.layout.sampler is SamplerAt.FIRST or rank != placement.layout.head_rank:
        return frozenset()
    vocabulary = Vocabulary(placement.path)
    try:
        return vocabulary.end_tokens
    finally:
        vocabulary.close()


def _ended(rank: int, error: Exception) -> int:
    if isinstance(error, RingStopped):
        return 0
    say(rank, str(error))
    return EXIT_RING


def leave_soon(rank: int, ring: Ring) -> None:
    """End the process within `GRACE_S` of a failed ring, even in the middle of a forward. For `Ring.on_end`."""

    def leave() -> None:
        time.sleep(GRACE_S)
        say(rank, str(ring.lost))
        os._exit(EXIT_RING)

    if ring.lost is not None:
        threading.Thread(target=leave, name="leave", daemon=True).start()


def dump_setup(options: Options, setup: RankSetup) -> bytes:
    """The JSON line that `main` reads."""
    assert setup.listener is not None
    value = {
        "options": {**asdict(options), "sampler": options.sampler.value},
        "rank": setup.rank,
        "addresses": setup.addresses,
        "key": setup.key.hex(),
        "listener": setup.listener.fileno(),
        "bring_up_s": setup.bring_up_s,
    }
    return json.dumps(value).encode() + b"\n"


def load_setup(line: bytes) -> tuple[Options, RankSetup]:
    """What `dump_setup` wrote, with the inherited listener."""
    value = json.loads(line)
    options = dict(value["options"])
    options["sampler"] = SamplerAt(options["sampler"])
    options["cuts"] = None if options["cuts"] is None else tuple(options["cuts"])
    listener = socket.socket(fileno=value["listener"])
    setup = RankSetup(
        value["rank"],
        tuple(value["addresses"]),
        bytes.fromhex(value["key"]),
        listener=listener,
        bring_up_s=value["bring_up_s"],
    )
    return Options(**options), setup


def _read_line() -> bytes:
    """One line from standard input, unbuffered: a thread waiting in a buffered reader would hold its lock at exit."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise ValueError("setup: the parent closed the pipe before it had said anything")
        line += byte
    return bytes(line)


def _end_with_parent(rank: int) -> None:
    while os.read(0, 4096):
        pass
    time.sleep(ORPHAN_S)
    say(rank, "rank 0 has gone")
    os._exit(EXIT_RING)


def main() -> int:
    """Read the setup from standard input and be that rank."""
    options, setup = load_setup(_read_line())
    threading.Thread(target=_end_with_parent, args=(setup.rank,), name="parent", daemon=True).start()
    try:
        placement = place(options)
    except (CheckpointError, ValueError) as error:
        say(setup.rank, str(error))
        return EXIT_FAILED
    return run_stage(placement, setup)


if __name__ == "__main__":
    sys.exit(main())
