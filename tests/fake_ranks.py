"""Whole rings of fake engines in one process: rank 0 for the test to drive, followers in threads, real loopback TCP."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Items
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fake_engine import FakeEngine, Shape
from ropeway.engines.base import EngineError, Logits
from ropeway.launch.placement import Options, Placement
from ropeway.launch.rank0 import Rank0, StageFacts
from ropeway.serving import sampler as sampling
from ropeway.serving.loop import Chooser, Loop
from ropeway.serving.prompts import Lookup
from ropeway.serving.rounds import Scheduled, Wanted
from ropeway.serving.scheduler import Propose, Scheduler
from ropeway.serving.sequence import Sequence
from ropeway.stage.describe import describe_stage
from ropeway.stage.follower import follow
from ropeway.stage.stage import Stage
from ropeway.stage.work import StageWork
from ropeway.transport import Ring, RingEnded, join
from ropeway.types import Layout, SamplerAt, even_cuts, ranges_from_cuts
from ropeway.wire import CacheAck, ErrorCode, ProtocolError, Ready
from transport.rings import Place


class Verifier:
    """Chooses by each sequence's parameters, and verifies drafts by choosing at each of their positions."""

    def __init__(self) -> None:
        self.prompt_logits: dict[int, list[tuple[int, list[float]]]] = {}
        """By sequence, (position, logits) of every prompt row that was wanted."""

    def choose(self, wanted: Wanted, logits: Logits) -> Items[int]:
        assert len(logits) == 1 + len(wanted.drafts)
        sequence = wanted.sequence
        chosen: list[int] = []
        for row, draft in zip(logits, (*wanted.drafts, -1), strict=True):
            chosen.append(sampling.choose(row, sequence.params, len(sequence.produced) + len(chosen)))
            if chosen[-1] != draft:
                break
        return chosen

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        kept = self.prompt_logits.setdefault(wanted.sequence.id, [])
        kept += [(wanted.position + offset + index, row.tolist()) for index, row in enumerate(logits)]


class FakeRing:
    """A ring that is ready. `stages` and `engines` are every rank's, `rings` and `ends` those of ranks 1 and up.

    An end is what a follower's ring has ended with. `pool` is for what a test wants done beside the ring.
    """

    def __init__(
        self,
        rank0: Rank0,
        stages: list[Stage],
        rings: list[Ring],
        ends: list[Future[Exception]],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.rank0, self.rings, self.ends, self.pool = rank0, rings, ends, pool
        self.stages = [rank0.stage, *stages]
        self.engines = [stage.engine for stage in self.stages if isinstance(stage.engine, FakeEngine)]
        self.layout = rank0.placement.layout
        self.layers = self.layout.layers
        self._ids = iter(range(1 << 31))

    def sequence(
        self, prompt: Items[int], max_tokens: int, stop_ids: Items[int] = (), *, every_row: bool = False
    ) -> Sequence:
        """A greedy sequence with an id that this ring has not seen."""
        stops = frozenset(stop_ids)
        return Sequence(next(self._ids), tuple(prompt), max_tokens, stop_ids=stops, every_row=every_row)

    def loop(
        self,
        chooser: Chooser,
        *,
        groups: int = 1,
        lookup: Lookup = lambda _: None,
        propose: Propose = lambda _, __: (),
        on_acks: Callable[[int, Items[CacheAck]], None] = lambda _rank, _acks: None,
        on_round: Callable[[Scheduled, StageWork], None] = lambda _scheduled, _work: None,
    ) -> Loop:
        """A loop with a scheduler of its own; the one before must have ended all its sequences."""
        c = self.rank0.limits
        scheduler = Scheduler(
            c.parallel, c.chunk, c.max_rows, c.context, c.kv_rows, groups=groups, lookup=lookup, propose=propose
        )
        rank0 = self.rank0
        return Loop(
            rank0.stage,
            rank0.ring,
            scheduler,
            chooser,
            sampler=self.layout.sampler,
            on_acks=on_acks,
            on_round=on_round,
        )


def layout_of(shape: Shape, world: int, sampler: SamplerAt = SamplerAt.FIRST) -> Layout:
    """The fake model over `world` ranks."""
    ranges = ranges_from_cuts(shape.layers, even_cuts(shape.layers, world))
    return Layout(shape.boundary, "ab" * 32, shape.layers, ranges, sampler)


def placement_of(shape: Shape, layout: Layout, path: str = "fake.gguf") -> Placement:
    """A placement as the commands make it."""
    options = Options(path, layout.world, None, layout.sampler, shape.context, shape.parallel, shape.chunk)
    return Placement(Path(path), layout, options)


@contextlib.contextmanager
def fake_ring(
    world: int,
    shape: Shape | None = None,
    *,
    sampler: SamplerAt = SamplerAt.FIRST,
    placement: Placement | None = None,
    round_s: float = 20.0,
    prepare: Mapping[int, Callable[[FakeEngine], None]] | None = None,
    end_tokens: frozenset[int] = frozenset(),
) -> Iterator[FakeRing]:
    """A ring that is ready; stopped on the way out, or failed by an error. `prepare` sets up ranks' engines."""
    shape = shape or Shape()
    placement = placement or placement_of(shape, layout_of(shape, world, sampler))
    layout = placement.layout
    stages = [Stage(FakeEngine.of(shape, placement.engine_config(rank))) for rank in range(world)]
    for rank, call in (prepare or {}).items():
        engine = stages[rank].engine
        assert isinstance(engine, FakeEngine)
        call(engine)
    if world == 1:
        with ThreadPoolExecutor(1) as pool:
            yield FakeRing(_rank0(placement, stages[0], None), [], [], [], pool)
        return
    here = Place(layout, round_s=round_s)
    with contextlib.closing(here), ThreadPoolExecutor(world + 1, "fake rank") as pool:
        rings: Future[list[Ring]] = pool.submit(_join_all, here, shape)
        ends = [pool.submit(_follow, rings, layout, stages[rank], rank, end_tokens) for rank in range(1, world)]
        try:
            with join(here.config(0, max_rows=shape.max_rows, chunk=shape.chunk)) as ring:
                yield FakeRing(_rank0(placement, stages[0], ring), stages[1:], rings.result(), ends, pool)
        except BaseException as error:
            for rank, end in enumerate(ends, 1):
                error.add_note(f"rank {rank}: {end.exception() or end.result()!r}")
            raise


def _rank0(placement: Placement, stage: Stage, ring: Ring | None) -> Rank0:
    engine = stage.engine
    own = describe_stage(placement.layout, 0, engine)
    described = [own] if ring is None else [own, *ring.descriptions()]
    engine.load()
    loaded = Ready(0, 1, 0, engine.weights_bytes)
    readies = [loaded] if ring is None else [loaded, *ring.readies()]
    facts = tuple(StageFacts(d, r, "127.0.0.1:0") for d, r in zip(described, readies, strict=True))
    return Rank0(placement, stage, ring, facts)


def _join_all(here: Place, shape: Shape) -> list[Ring]:
    """Ranks 1 and up."""
    configs = [here.config(rank, max_rows=shape.max_rows, chunk=shape.chunk) for rank in range(1, here.layout.world)]
    with ThreadPoolExecutor(len(configs)) as pool:
        return list(pool.map(join, configs))


def _follow(
    rings: Future[list[Ring]], layout: Layout, stage: Stage, rank: int, end_tokens: frozenset[int]
) -> Exception:
    """What a rank's process does."""
    ring = rings.result()[rank - 1]
    try:
        ring.describe(describe_stage(layout, rank, stage.engine))
        stage.engine.load()
        ring.ready(Ready(rank, 1, 0, stage.engine.weights_bytes))
        follow(ring, stage, layout, rank, end_tokens)
    except RingEnded as end:
        return end
    except EngineError as error:
        ring.fail(ErrorCode.ENGINE_FAILED, f"rank {rank}: {error}")
        return error
    except ProtocolError as error:
        ring.fail(error.code, f"a plan that rank {rank} cannot run: {error.detail}", rank=0)
        return error
    finally:
        ring.close()
    raise AssertionError("a stage follows until its ring ends")


class Gate:
    """Holds a thread until the test lets it go; `reached` tells that somebody waits."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self._open.wait(20), "nobody opened the gate"

    def open(self) -> None:
        self._open.set()
