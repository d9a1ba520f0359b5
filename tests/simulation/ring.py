"""A ring on a simulated clock: the real loop, follower, scheduler and slots, on links and engines that take time.

A boundary has two buffers to send from and two to receive into, as the transport has (docs/wire.md, transport/). A
link carries one part at a time and looks at its bytes before and after; whatever is given back is overwritten at once.
So rows that are used too long or overwritten too early are refused, by the link or by the fake engine's checksums.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

from fake_engine import FakeEngine, Shape
from fake_ranks import Verifier
from ropeway.engines.base import Logits, Span
from ropeway.serving.loop import Loop
from ropeway.serving.part_size import Cost
from ropeway.serving.scheduler import Cut, Propose, Scheduler, no_drafts, together
from ropeway.serving.sequence import Sequence
from ropeway.stage.follower import follow
from ropeway.stage.stage import Stage
from ropeway.transport import Ring, Waits
from ropeway.types import Layout, ranges_from_cuts
from ropeway.wire import Done, Plan, Tokens
from simulation.clock import Clock

FREE = Cost(0.0, 0.0)
BUFFERS = 2


@dataclass(frozen=True)
class Speeds:
    """What a part costs every stage, and every link behind it (the last one leads back to rank 0); `head_ms` a row."""

    stages: tuple[Cost, ...]
    links: tuple[Cost, ...] = ()
    head_ms: float = 0.0

    @property
    def world(self) -> int:
        return len(self.stages)

    def link(self, rank: int) -> Cost:
        return self.links[rank] if self.links else FREE


class Link:
    """From one rank to the next."""

    def __init__(self, clock: Clock, name: str, cost: Cost, row_bytes: int, most_rows: int) -> None:
        self.clock, self.name, self.cost, self.row_bytes = clock, name, cost, row_bytes
        self.free_out = [bytearray(most_rows * row_bytes) for _ in range(BUFFERS)]
        self.free_in = [bytearray(most_rows * row_bytes) for _ in range(BUFFERS)]
        self.lent: deque[bytearray] = deque()
        self.due: deque[tuple[tuple[int, int], int, bytearray]] = deque()
        self.arrived: deque[tuple[tuple[int, int], int, bytearray]] = deque()

    def carry(self) -> None:
        """The link's task."""
        while True:
            self.clock.wait(lambda: bool(self.due and self.free_in), "a part and a buffer for it")
            tag, size, out = self.due.popleft()
            into, before = self.free_in.pop(), bytes(out[:size])
            self.clock.sleep(self.cost.part_ms(size // self.row_bytes) / 1e3)
            assert bytes(out[:size]) == before, f"{self.name}: part {tag} was overwritten in flight"
            into[:size] = before
            self.arrived.append((tag, size, into))
            self.give_back(out, self.free_out)

    def give_back(self, buffer: bytearray, free: list[bytearray]) -> None:
        """Nobody may use it any more."""
        buffer[:] = b"\xaa" * len(buffer)
        free.append(buffer)


class Seat:
    """One rank's place: what the loop and the follower need of transport.Ring."""

    def __init__(self, clock: Clock, rank: int, world: int, inward: Link, outward: Link) -> None:
        self.clock, self.rank, self.world = clock, rank, world
        self.inward, self.outward = inward, outward
        self.waits = Waits()
        self.plans: deque[tuple[int, Plan]] = deque()
        self.others: list[Seat] = []
        self.reports: deque[tuple[int, int, Done]] = deque()
        self.rounds = 0
        self.borrowed: bytearray | None = None

    def send_plan(self, plan: Plan) -> int:
        self.rounds += 1
        for other in self.others:
            other.plans.append((self.rounds, plan))
        return self.rounds

    def next_plan(self) -> tuple[int, Plan]:
        self.clock.wait(lambda: bool(self.plans), "a plan")
        return self.plans.popleft()

    def send_buffer(self, size: int) -> memoryview:
        started = self.clock.now
        self.clock.wait(lambda: bool(self.outward.free_out), "a buffer to send from")
        self.waits.send_s += self.clock.now - started
        buffer = self.outward.free_out.pop()
        self.outward.lent.append(buffer)
        return memoryview(buffer)[:size]

    def send_rows(self, round_: int, part: int, rows: int, buffer: memoryview) -> None:
        self.outward.due.append(((round_, part), len(buffer), self.outward.lent.popleft()))

    def receive_rows(self, round_: int, part: int) -> memoryview:
        assert self.borrowed is None
        started = self.clock.now
        self.clock.wait(lambda: bool(self.inward.arrived), f"the rows of part {part} of round {round_}")
        self.waits.rows_s += self.clock.now - started
        tag, size, self.borrowed = self.inward.arrived.popleft()
        assert tag == (round_, part)
        return memoryview(self.borrowed)[:size]

    def release_rows(self) -> None:
        assert self.borrowed is not None
        self.inward.give_back(self.borrowed, self.inward.free_in)
        self.borrowed = None

    def done(self, round_: int, done: Done) -> None:
        self.others[0].reports.append((self.rank, round_, done))

    def dones(self) -> list[tuple[int, int, Done]]:
        found = list(self.reports)
        self.reports.clear()
        return found

    def next_done(self) -> tuple[int, int, Done]:
        self.clock.wait(lambda: bool(self.reports), "a done frame")
        return self.reports.popleft()

    def receive_tokens(self, round_: int) -> Tokens:
        raise NotImplementedError

    def check(self) -> None:
        """The ring lives."""


class TimedEngine(FakeEngine):
    """The fake model at a speed; refuses rows that change while it computes."""

    clock: Clock
    cost: Cost
    head_ms: float
    ran: Callable[[tuple[float, float]], None] = staticmethod(lambda _: None)
    """Told when each forward began and ended."""

    def _run(self, spans: Items[Span], rows: memoryview) -> list[tuple[int, int, int]]:
        before, began = bytes(rows), self.clock.now
        self.clock.sleep(self.cost.part_ms(sum(span.rows for span in spans)) / 1e3)
        self.ran((began, self.clock.now))
        assert bytes(rows) == before, "rows changed while they were computed"
        return super()._run(spans, rows)

    def head(self, spans: Items[Span], rows: memoryview, wanted: Items[int]) -> Logits:
        self.clock.sleep(self.head_ms * len(wanted) / 1e3)
        return super().head(spans, rows, wanted)


class Simulated:
    """A ring that is ready; `commits` has when every sequence got its tokens, in seconds, by its id."""

    def __init__(self, clock: Clock, loop: Loop, seats: Items[Seat], engines: Items[TimedEngine]) -> None:
        self.clock, self.loop, self.seats, self.engines = clock, loop, seats, engines
        self.commits: dict[int, list[float]] = {}

    def serve(self, sequences: Items[Sequence]) -> None:
        """Run them all to their end; every rank then waits for a plan, and nothing is left behind."""

        def work() -> None:
            for sequence in sequences:
                self.loop.scheduler.add(sequence)
            while not self.loop.scheduler.idle:
                for committed in self.loop.step():
                    self.commits.setdefault(committed.sequence.id, []).append(self.clock.now)

        self.clock.run("rank 0", work)
        self.clock.settle()
        self.loop.collect()
        for seat in self.seats:
            assert len(seat.outward.free_out) == len(seat.outward.free_in) == BUFFERS
            assert not seat.outward.due
            assert not seat.outward.arrived
        waiting = self.clock.waiting_for()
        assert all(what == "a plan" for name, what in waiting.items() if name.startswith("rank"))
        assert all(engine.held == 0 for engine in self.engines)


@contextlib.contextmanager
def simulated(
    speeds: Speeds, shape: Shape, *, groups: int = 1, propose: Propose = no_drafts, cut: Cut = together
) -> Iterator[Simulated]:
    """A ring of one layer a rank at these speeds, its records and dones in simulated time."""
    clock, world = Clock(), speeds.world
    assert shape.layers == world
    layout = Layout(shape.boundary, "ab" * 32, world, ranges_from_cuts(world, tuple(range(1, world))))
    row_bytes = shape.boundary.row_bytes()
    engines: list[TimedEngine] = []
    for rank in range(world):
        engine = TimedEngine(shape, rank, rank + 1, embed=rank == 0, head=rank == 0)
        engine.clock, engine.cost, engine.head_ms = clock, speeds.stages[rank], speeds.head_ms
        engines.append(engine)
    links = [
        Link(clock, f"link {rank}", speeds.link(rank), row_bytes, shape.max_rows)
        for rank in range(world if world > 1 else 0)
    ]
    seats = [Seat(clock, rank, world, links[rank - 1], links[rank]) for rank in range(len(links))]
    stages = [Stage(engine) for engine in engines]
    for seat in seats[1:]:
        seats[0].others.append(seat)
        seat.others.append(seats[0])
    for link in links:
        clock.spawn(link.name, link.carry)
    for seat in seats[1:]:
        clock.spawn(f"rank {seat.rank}", _follower(seat, stages[seat.rank], layout))
    limits = engines[0].capacities
    scheduler = Scheduler(
        limits.parallel,
        limits.chunk,
        limits.max_rows,
        limits.context,
        limits.kv_rows,
        groups=groups,
        propose=propose,
        cut=cut,
    )
    loop = Loop(stages[0], cast(Ring, seats[0]) if seats else None, scheduler, Verifier())
    times = SimpleNamespace(perf_counter_ns=lambda: clock.now_ns)
    try:
        with patch("ropeway.stage.stage.time", times), patch("ropeway.serving.loop.time", times):
            yield Simulated(clock, loop, seats, engines)
    finally:
        clock.close()


def _follower(seat: Seat, stage: Stage, layout: Layout) -> Callable[[], None]:
    return lambda: follow(cast(Ring, seat), stage, layout, seat.rank)
