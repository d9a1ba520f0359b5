"""What a hop costs over iroh, against TCP: a 20 KiB round trip, a decode round, and 40 MiB one way.

Two ranks, each with a node agent of its own; the agents carry the ring's bytes over QUIC on lo, in a network namespace
that this bench makes for itself. The ring over TCP beside it is the one of `wire.py`; both take turns in one run. What
a row passes over iroh, one way: rank, Unix socket, agent, QUIC (encrypted), agent, Unix socket, rank.

    python bench/over_iroh.py [--repeats 10] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from results import Figure, Result
from ropeway.cluster.client import Agent
from ropeway.cluster.process import running_agent
from ropeway.cluster.settings import AgentSettings
from ropeway.transport import Ring, RingConfig, RingStopped, join, tcp
from ropeway.transport.switched import Switched, listen
from ropeway.wire import Ready
from wire import LAYOUT, MAX_ROWS, PART_ROWS, ROW_BYTES, TRIPS, WARM_TURNS, Roped, description, follow

RING: Final = "bench"
NAMES: Final = ("tcp", "iroh")
INSIDE: Final = "ROPEWAY_BENCH_INSIDE"


def over_iroh(rank: int, key: bytes, agents: list[str], sockets: Path, listener_at: Path) -> RingConfig:
    """A rank's configuration behind its agent; `agents` are both nodes' ids."""
    switched = Switched(sockets / "switch", RING)
    return RingConfig(
        rank,
        LAYOUT,
        key,
        tuple(f"{node}:{number}" for number, node in enumerate(agents)),
        MAX_ROWS,
        PART_ROWS,
        listener=listen(listener_at),
        connect=switched.connect,
        accepted=switched.accepted,
    )


def child(repeats: int) -> None:
    """Rank 1 of both rings."""
    setup = json.loads(sys.stdin.readline())
    key, sockets = bytes.fromhex(setup["key"]), Path(setup["sockets"])
    plain = RingConfig(1, LAYOUT, key, tuple(setup["addresses"]), MAX_ROWS, PART_ROWS)
    with ExitStack() as stack:
        rings = []
        for config in (plain, over_iroh(1, key, setup["agents"], sockets, sockets / f"{RING}.1")):
            ring = stack.enter_context(join(config))
            ring.describe(description())
            ring.ready(Ready(1, 0, 0, 0))
            rings.append(ring)
        for _ in range(repeats):
            for ring in rings:
                for _ in range(2 + TRIPS // 4):
                    follow(ring)
        try:
            rings[0].next_plan()
        except RingStopped:
            return


def measure(repeats: int, one: Agent, other: Agent) -> dict[str, list[float]]:
    """Run everything; seconds by ring and by what was measured."""
    with tcp.listen("127.0.0.1:0") as listener, tcp.listen("127.0.0.1:0") as spare:
        addresses = tuple(map(tcp.listening_address, (listener, spare)))
        spare.close()
        key = os.urandom(32)
        setup = {"key": key.hex(), "addresses": addresses, "agents": [one.node, other.node]}
        setup["sockets"] = str(other.running.sockets)
        command = [sys.executable, __file__, "--child", "--repeats", str(repeats)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        assert process.stdin is not None
        times: dict[str, list[float]] = {f"{name} {what}": [] for name in NAMES for what in ("trip", "round", "way")}
        with process, process.stdin as pipe, ExitStack() as stack:
            print(json.dumps(setup), file=pipe, flush=True)
            plain = RingConfig(0, LAYOUT, key, addresses, MAX_ROWS, PART_ROWS, listener=listener)
            sockets = one.running.sockets
            iroh = over_iroh(0, key, [one.node, other.node], sockets, sockets / f"{RING}.0")
            rings = [_ready(stack.enter_context(join(config))) for config in (plain, iroh)]
            for turn in range(repeats):
                if turn == WARM_TURNS:
                    times = {name: [] for name in times}
                for name, ring in zip(NAMES, rings, strict=True):
                    times[f"{name} trip"] += ring.trips()
                    times[f"{name} round"] += ring.rounds()
                    times[f"{name} way"].append(ring.way())
        return times


def _ready(ring: Ring) -> Roped:
    ring.descriptions()
    ring.readies()
    return Roped(ring)


def in_a_namespace() -> None:
    """Start this very command again where there is nothing but lo: iroh looks for routers when it starts."""
    inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
    flags = "-n" if os.getuid() == 0 else "-rn"
    os.execvpe("unshare", ["unshare", flags, *inside], {**os.environ, INSIDE: "1"})


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=10, help="turns")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    repeats = max(arguments.repeats, WARM_TURNS + 2)
    if arguments.child:
        child(repeats)
        return
    if INSIDE not in os.environ:
        in_a_namespace()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        one = stack.enter_context(running_agent(_node(directory, "a", "")))
        other = stack.enter_context(running_agent(_node(directory, "b", one.ticket())))
        one.wait_for_members(2, 30)
        times = measure(repeats, one, other)
    mib = ROW_BYTES * MAX_ROWS / 2**20
    figures = [
        Figure.of(f"{name} {what}", "us", [value * 1e6 for value in times[f"{name} {what}"]], more=False)
        for what in ("trip", "round")
        for name in NAMES
    ]
    figures += [Figure.of(f"{name} way", "MiB/s", [mib / value for value in times[f"{name} way"]]) for name in NAMES]
    setting = f"{ROW_BYTES >> 10} KiB there and back, {mib:.0f} MiB one way, two ranks and two agents on one machine"
    Result("over_iroh", setting, tuple(figures)).tell(arguments)


def _node(directory: str, name: str, ticket: str) -> AgentSettings:
    """A node on lo: the first one, or by a ticket."""
    bind = ("127.0.0.1:0",)
    return AgentSettings(f"{directory}/{name}", ticket, not ticket, label=name, relays="none", bind=bind)


if __name__ == "__main__":
    main()
