"""What the ring's row path costs against bare blocking sockets: a 20 KiB round trip and 40 MiB one way, two processes.

Bare sockets are plain `sendmsg` and `recv_into` with TCP_NODELAY on the payload alone: no header, no check, no
deadline. Like a ring they have one connection for each direction; "bare trip, shared" has one for both, whose
acknowledgements ride on the answers. The ring does its full work: headers, sizes known from plans, two buffers,
keep-alive, silence. All take turns of some milliseconds in one run, each process on a core of its own where there are
two, and the ratio of the medians is what counts. "round" is a whole decode round without any computing: plan, row, row.

    python bench/wire.py [--repeats 25] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Final

from results import Figure, Result
from ropeway.transport import Ring, RingConfig, RingStopped, join, tcp
from ropeway.types import Backend, Boundary, EngineKind, KvDtype, Layout, RowDtype
from ropeway.wire import Describe, Done, Op, Plan, Ready, Returns, StreamEntry

ROW_BYTES: Final = 20 << 10
TRIPS: Final = 200
WARM_TRIPS: Final = 40
"""Trips at the beginning of a turn that are not counted, for all alike: the cores have been waiting, or copying."""
PART_ROWS: Final = 512
PARTS: Final = 4
MAX_ROWS: Final = PART_ROWS * PARTS
WARM_TURNS: Final = 2
"""Turns that are thrown away: buffers are touched and windows grow."""
TRIP_NAMES: Final = ("bare trip", "bare trip, shared", "ring trip", "round")
WAY_NAMES: Final = ("bare way", "ring way")
LAYOUT: Final = Layout(Boundary(ROW_BYTES // 4), "00" * 32, 2, ((0, 1), (1, 2)))


def round_trips(stream: int) -> Plan:
    """One round of many parts of one row each, all of which come back: the row path and nothing else."""
    return Plan((StreamEntry(stream, Op.OPEN, rows=TRIPS),), tuple(range(1, TRIPS)), returns=Returns.ALL)


def one_way(stream: int) -> Plan:
    """A prompt of 40 MiB of rows in large parts; nothing comes back but the done frame."""
    cuts = tuple(range(PART_ROWS, MAX_ROWS, PART_ROWS))
    entry = StreamEntry(stream, Op.OPEN, rows=MAX_ROWS)
    return Plan((entry,), cuts, returns=Returns.LISTED, listed=(0,))


def decode(stream: int) -> Plan:
    """An ordinary decode round: a plan, one row there, one row back, a done frame."""
    return Plan((StreamEntry(stream, Op.OPEN, rows=1),))


def fill(sock: socket.socket, room: memoryview) -> None:
    """Bare: receive exactly a buffer."""
    while room:
        count = sock.recv_into(room)
        if not count:
            raise EOFError("the other process has gone")
        room = room[count:]


def pour(sock: socket.socket, payload: memoryview) -> None:
    """Bare: send all of a buffer."""
    while payload:
        payload = payload[sock.sendmsg((payload,)) :]


class Bare:
    """One end of a pair of bare connections, out and in; the child's end answers."""

    def __init__(self, out: socket.socket, back: socket.socket) -> None:
        tcp.tune(out)
        tcp.tune(back)
        self.out = out
        self.back = back
        self.row = memoryview(bytearray(ROW_BYTES))
        self.parts = [memoryview(bytearray(ROW_BYTES * PART_ROWS)) for _ in range(2)]
        self.ack = memoryview(bytearray(1))

    def trips(self) -> list[float]:
        """Seconds of each round trip."""
        times = []
        for _ in range(TRIPS):
            started = time.perf_counter()
            pour(self.out, self.row)
            fill(self.back, self.row)
            times.append(time.perf_counter() - started)
        return times

    def answer_trips(self) -> None:
        """The child's side of `trips`."""
        for _ in range(TRIPS):
            fill(self.back, self.row)
            pour(self.out, self.row)

    def way(self) -> float:
        """Seconds until 40 MiB are there and acknowledged."""
        started = time.perf_counter()
        for part in range(PARTS):
            pour(self.out, self.parts[part % 2])
        fill(self.back, self.ack)
        return time.perf_counter() - started

    def answer_way(self) -> None:
        """The child's side of `way`."""
        for part in range(PARTS):
            fill(self.back, self.parts[part % 2])
        pour(self.out, self.ack)


class Roped:
    """Rank 0's end of the same measurements over a ring."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.stream = 0

    def _start(self, plan: Plan) -> int:
        self.stream += 1
        return self.ring.send_plan(plan)

    def _end(self) -> None:
        self.ring.next_done()

    def trips(self) -> list[float]:
        """Seconds of each round trip of a part, without the plan and the done frame of the round."""
        ring = self.ring
        number = self._start(round_trips(self.stream))
        times = []
        for part in range(TRIPS):
            out = ring.send_buffer(ROW_BYTES)
            started = time.perf_counter()
            ring.send_rows(number, part, 1, out)
            ring.receive_rows(number, part)
            times.append(time.perf_counter() - started)
            ring.release_rows()
        self._end()
        return times

    def rounds(self) -> list[float]:
        """Seconds of each decode round, with plan and done frame, but without waiting for the latter."""
        ring = self.ring
        times = []
        for _ in range(TRIPS // 4):
            started = time.perf_counter()
            number = self._start(decode(self.stream))
            ring.send_rows(number, 0, 1, ring.send_buffer(ROW_BYTES))
            ring.receive_rows(number, 0)
            ring.release_rows()
            times.append(time.perf_counter() - started)
            self._end()
        return times

    def way(self) -> float:
        """Seconds until 40 MiB are there and the done frame has come; the plan went before."""
        ring = self.ring
        number = self._start(one_way(self.stream))
        started = time.perf_counter()
        for part in range(PARTS):
            ring.send_rows(number, part, PART_ROWS, ring.send_buffer(ROW_BYTES * PART_ROWS))
        self._end()
        return time.perf_counter() - started


def follow(ring: Ring) -> None:
    """Rank 1 between two bare measurements: one plan, its rows back where they return, done."""
    number, plan = ring.next_plan()
    returned = len(plan.returned_frames())
    for part, (start, stop) in enumerate(plan.part_ranges()):
        if returned:
            out = ring.send_buffer(ROW_BYTES)
            ring.receive_rows(number, part)
            ring.send_rows(number, part, stop - start, out)
        else:
            ring.receive_rows(number, part)
        ring.release_rows()
    ring.done(number, Done(1))


def pin(core: int) -> None:
    """Keep this process on one core, where the system can and there are two."""
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            os.sched_setaffinity(0, {cores[core]})


def config(rank: int, setup: dict[str, str], listener: socket.socket) -> RingConfig:
    """Either rank's configuration."""
    addresses = setup["rank 0"], setup["rank 1"]
    return RingConfig(rank, LAYOUT, bytes.fromhex(setup["key"]), addresses, MAX_ROWS, PART_ROWS, listener=listener)


def child(repeats: int) -> None:
    """Rank 1, and the answering end of the bare connection."""
    pin(1)
    setup = json.loads(sys.stdin.readline())
    listener = socket.socket(fileno=int(setup["listener"]))
    bare_at = tcp.parse_address(setup["bare"])
    with contextlib.ExitStack() as stack:
        stack.enter_context(listener)
        out, back, both = [stack.enter_context(socket.create_connection(bare_at)) for _ in range(3)]
        bare, shared = Bare(out, back), Bare(both, both)
        with join(config(1, setup, listener)) as ring:
            ring.describe(description())
            ring.ready(Ready(1, 0, 0, 0))
            try:
                for _ in range(repeats):
                    bare.answer_trips()
                    shared.answer_trips()
                    follow(ring)
                    for _ in range(TRIPS // 4):
                        follow(ring)
                    bare.answer_way()
                    follow(ring)
                ring.next_plan()
            except RingStopped:
                return


def description() -> Describe:
    """Rank 1's description, as far as the ring cares."""
    engine, kv, backend = EngineKind.TORCH, KvDtype.F32, Backend.CPU
    hidden = LAYOUT.boundary.hidden
    return Describe(
        1, 2, 1, 2, hidden, 1, RowDtype.F32, kv, backend, engine, PART_ROWS, MAX_ROWS, 1, MAX_ROWS, MAX_ROWS
    )


def measure(repeats: int) -> dict[str, list[float]]:
    """Run everything; seconds by what was measured."""
    listeners = [tcp.listen("127.0.0.1:0") for _ in range(3)]
    setup = dict(zip(("rank 0", "rank 1", "bare"), map(tcp.listening_address, listeners), strict=True))
    setup |= {"key": os.urandom(32).hex(), "listener": str(listeners[1].fileno())}
    other = subprocess.Popen(
        [sys.executable, __file__, "--child", "--repeats", str(repeats)],
        stdin=subprocess.PIPE,
        pass_fds=[listeners[1].fileno()],
        text=True,
    )
    pin(0)
    assert other.stdin is not None
    with other, other.stdin as pipe:
        print(json.dumps(setup), file=pipe, flush=True)
        listeners[1].close()
        back, out, both = [listeners[2].accept()[0] for _ in range(3)]
        times: dict[str, list[float]] = {name: [] for name in (*TRIP_NAMES, *WAY_NAMES)}
        with back, out, both, join(config(0, setup, listeners[0])) as ring:
            bare, shared, roped = Bare(out, back), Bare(both, both), Roped(ring)
            ring.descriptions()
            ring.readies()
            for turn in range(repeats):
                if turn == WARM_TURNS:
                    times = {name: [] for name in times}
                times["bare trip"] += bare.trips()[WARM_TRIPS:]
                times["bare trip, shared"] += shared.trips()[WARM_TRIPS:]
                times["ring trip"] += roped.trips()[WARM_TRIPS:]
                times["round"] += roped.rounds()
                times["bare way"].append(bare.way())
                times["ring way"].append(roped.way())
        for listener in listeners:
            listener.close()
    return times


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=25, help="turns")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.child:
        child(max(arguments.repeats, WARM_TURNS + 2))
        return
    times = measure(max(arguments.repeats, WARM_TURNS + 2))
    mib = ROW_BYTES * MAX_ROWS / 2**20
    trips = {name: [value * 1e6 for value in times[name]] for name in TRIP_NAMES}
    ways = {name: [mib / value for value in times[name]] for name in WAY_NAMES}
    trip_ratio = statistics.median(trips["bare trip"]) / statistics.median(trips["ring trip"])
    way_ratio = statistics.median(ways["ring way"]) / statistics.median(ways["bare way"])
    figures = (
        *(Figure.of(name, "us", values, more=False) for name, values in trips.items()),
        *(Figure.of(name, "MiB/s", values) for name, values in ways.items()),
        Figure.of("round trip, of bare sockets' speed", "times", [trip_ratio], ideal=1.0, limit=0.9),
        Figure.of("one way, of bare sockets' speed", "times", [way_ratio], ideal=1.0, limit=0.9),
    )
    setting = f"{ROW_BYTES >> 10} KiB there and back, {mib:.0f} MiB one way, two processes, a core each"
    Result("wire", setting, figures).tell(arguments)


if __name__ == "__main__":
    main()
