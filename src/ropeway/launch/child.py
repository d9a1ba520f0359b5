"""One rank as a child process of rank 0: `python -m ropeway.launch.child RANK`.

It reads one JSON line with its setup (the key among it, so that no argument list shows it) and takes the end of its
standard input for its parent's death. RANK is there for those who read a list of processes.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropeway.launch.placement import Options
    from ropeway.launch.rank import RankSetup

ORPHAN_S = 1.5
"""How long a child may outlive its parent's pipe."""


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
    from ropeway.launch.placement import Options
    from ropeway.launch.rank import RankSetup
    from ropeway.transport.switched import Switched
    from ropeway.types import SamplerAt

    value = json.loads(line)
    options = dict(value["options"])
    options["sampler"] = SamplerAt(options["sampler"])
    options["cuts"] = None if options["cuts"] is None else tuple(options["cuts"])
    options["engines"] = tuple(options["engines"])
    listener = socket.socket(fileno=value["listener"])
    switch = value.get("switch", "")
    setup = RankSetup(
        value["rank"],
        tuple(value["addresses"]),
        bytes.fromhex(value["key"]),
        listener=listener,
        bring_up_s=value["bring_up_s"],
        switched=Switched(Path(switch), value["ring"]) if switch else None,
    )
    return Options(**options), setup


def _read_line() -> bytes:
    """One line from standard input, unbuffered: a thread waiting in a buffered reader would hold its lock at exit."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("setup: the parent closed the pipe before it had said anything")
        line += byte
    return bytes(line)


def _end_with_parent(rank: int) -> None:
    from ropeway.launch.rank import EXIT_RING, say

    while os.read(0, 4096):
        pass
    time.sleep(ORPHAN_S)
    say(rank, "whoever started this rank has gone")
    os._exit(EXIT_RING)


def main() -> None:
    """Read the setup from standard input, be that rank, and end the process."""
    # Ctrl-C reaches every process of a terminal's group: rank 0 alone decides what becomes of the ring. First of all,
    # because the imports below take their time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from ropeway.checkpoints.errors import CheckpointError
    from ropeway.cluster.job import Weights
    from ropeway.launch.fetching import place_from_nodes, place_rank
    from ropeway.launch.orphans import die_with_parent
    from ropeway.launch.rank import EXIT_FAILED, leave, run_stage, say

    line = _read_line()
    options, setup = load_setup(line)
    if setup.switched is not None:
        die_with_parent()
    logging.basicConfig(level=logging.WARNING, format=f"ropeway: rank {setup.rank}: %(message)s")
    threading.Thread(target=_end_with_parent, args=(setup.rank,), name="parent", daemon=True).start()
    try:
        weights = Weights.parse(json.loads(line).get("weights", {}))
        if setup.switched is not None and weights.keys:
            placement = place_from_nodes(options, setup.rank, weights, setup.switched.switch)
        else:
            placement = place_rank(options, setup.rank, len(setup.addresses))
    except (CheckpointError, ValueError) as error:
        say(setup.rank, str(error))
        leave(EXIT_FAILED)
    leave(run_stage(placement, setup))


if __name__ == "__main__":
    main()
