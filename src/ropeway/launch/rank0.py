"""Rank 0 brought up: the ring joined, the stages described, checked and loaded, the serving loop ready to step."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import NO_STATES, Engine, EngineError, Mortal
from ropeway.engines.registry import ENGINES
from ropeway.launch.fits import check_fits
from ropeway.launch.local import local_ranks
from ropeway.launch.placement import Placement
from ropeway.launch.rank import RankSetup, ring_config
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.loop import Chooser, Loop
from ropeway.serving.prompts import Lookup
from ropeway.serving.rounds import Scheduled
from ropeway.serving.scheduler import Cut, Scheduler, apart, no_drafts, together
from ropeway.stage.describe import RELEASE, describe_stage
from ropeway.stage.stage import Stage
from ropeway.stage.work import StageWork
from ropeway.transport import Ring, join
from ropeway.transport.ring import LOAD_S
from ropeway.types import Backend, placement_name
from ropeway.wire import CacheAck, Describe, ErrorCode, Expected, ProtocolError, Ready, check_description

BRING_UP_S = 60.0


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What rank 0 knows of a stage once the ring is ready."""

    describe: Describe
    ready: Ready
    address: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What the ring can hold and run, in streams and rows (wire.md 6)."""

    parallel: int
    chunk: int
    max_rows: int
    context: int
    kv_rows: int


@dataclass(slots=True)
class Rank0:
    """A ring that is ready, as rank 0 holds it."""

    placement: Placement
    stage: Stage
    ring: Ring | None
    facts: tuple[StageFacts, ...]
    grain: int = 1
    """Parts of prompts that are multiples of so many rows have the same bits whatever their size."""

    @property
    def name(self) -> str:
        """The placement's: its layout, and every rank's engine, backend and dtypes."""
        options = self.placement.options
        own = f"{options.dtype} {'invariant' if options.invariant else ''}"
        described = [fact.describe for fact in self.facts]
        computing = [f"{d.engine.name} {d.backend.name} {d.kv_dtype.name} {own}" for d in described]
        return placement_name(self.placement.layout.fingerprint(), computing)

    @property
    def resumes_at(self) -> int:
        """A prompt that resumes at a multiple of so many rows has the bits of one that was read from the start."""
        return self.grain if self.grain > 1 else self.limits.chunk

    @property
    def recurrent(self) -> bool:
        """Some stage keeps states that can be resumed only where they were kept (engines/torch/slot.py)."""
        return any(fact.describe.states != NO_STATES for fact in self.facts)

    @property
    def limits(self) -> Limits:
        """The tightest stage's."""
        described = [fact.describe for fact in self.facts]
        return Limits(
            parallel=min(d.parallel for d in described),
            chunk=min(d.chunk for d in described),
            max_rows=min(d.max_rows for d in described),
            context=min(d.context for d in described),
            kv_rows=min(d.kv_rows for d in described),
        )

    @property
    def rows_stand_alone(self) -> bool:
        """Rows of a stream that run together have the bits that each has alone, on every stage, as far as is known."""
        config = self.placement.whole_config()
        return all(
            fact.describe.backend is Backend.CPU and ENGINES[fact.describe.engine.name.lower()].stands_alone(config)
            for fact in self.facts
        )

    def _cut(self, drafting: Drafting | None) -> Cut:
        if drafting is None:
            return together
        return drafting.cut if drafting.batch or self.rows_stand_alone else apart

    def loop(
        self,
        chooser: Chooser,
        *,
        groups: int = 1,
        part: int = 0,
        lookup: Lookup = lambda _: None,
        on_acks: Callable[[int, Sequence[CacheAck]], None] = lambda _rank, _acks: None,
        on_round: Callable[[Scheduled, StageWork], None] = lambda _scheduled, _work: None,
        drafting: Drafting | None = None,
    ) -> Loop:
        """A serving loop within the tightest stage's limits; `part` rows a part of a prompt, 0 for as many as fit.

        `drafting` stays the caller's to close.
        """
        limits = self.limits
        scheduler = Scheduler(
            limits.parallel,
            min(part, limits.chunk) if part else limits.chunk,
            limits.max_rows,
            limits.context,
            limits.kv_rows,
            groups=groups,
            send_tokens=self.placement.reads_tokens,
            rows_back=drafting is not None and drafting.needs_rows,
            grain=self.grain,
            lookup=lookup,
            propose=no_drafts if drafting is None else drafting.propose,
            cut=self._cut(drafting),
        )
        return Loop(
            self.stage,
            self.ring,
            scheduler,
            chooser,
            sampler=self.placement.layout.sampler,
            on_acks=on_acks,
            on_round=on_round,
            drafting=drafting,
        )


@contextlib.contextmanager
def open_local(
    placement: Placement, bring_up_s: float = BRING_UP_S, begun: Callable[[Ring], None] = lambda _: None
) -> Iterator[Rank0]:
    """A ring whose other ranks are child processes here; all of it has ended on the way out. As `open_ring`."""
    if placement.layout.world == 1:
        with open_alone(placement) as rank0:
            yield rank0
        return
    with local_ranks(placement, bring_up_s) as ranks:

        def joined_by_ranks(ring: Ring) -> None:
            ranks.serve(ring)
            begun(ring)

        with open_ring(placement, ranks.setup, joined_by_ranks) as rank0:
            yield rank0


@contextlib.contextmanager
def open_alone(placement: Placement) -> Iterator[Rank0]:
    """A ring of one: no connection at all."""
    stage, facts = _load(placement, None)
    try:
        yield Rank0(placement, stage, None, facts, common_grain(facts))
    finally:
        stage.engine.close()


@contextlib.contextmanager
def open_ring(
    placement: Placement, setup: RankSetup, begun: Callable[[Ring], None] = lambda _: None
) -> Iterator[Rank0]:
    """Join as rank 0 and wait until every stage is ready; `begun` gets the ring before that.

    On the way out the ring is stopped, or fails by name where the engine did. Raises RingLost, EngineError,
    CheckpointError or ValueError.
    """
    placement.preload(0)
    with join(ring_config(placement, setup), begun) as ring:
        try:
            stage, facts = _load(placement, ring, setup.addresses)
            try:
                yield Rank0(placement, stage, ring, facts, common_grain(facts))
            finally:
                stage.engine.close()
        except (EngineError, CheckpointError) as error:
            ring.fail(ErrorCode.ENGINE_FAILED, f"rank 0 ({setup.addresses[0]}): {error}")
            raise
        except (KeyboardInterrupt, GeneratorExit, SystemExit, ValueError, BrokenPipeError):
            ring.stop()  # rank 0 leaves, and nothing is wrong with the ring
            raise


def _load(
    placement: Placement, ring: Ring | None, addresses: tuple[str, ...] = ("",)
) -> tuple[Stage, tuple[StageFacts, ...]]:
    engine = placement.make_engine(0)
    try:
        return meet(engine, placement, ring, addresses)
    except BaseException:
        engine.close()
        raise


def meet(
    engine: Engine, placement: Placement, ring: Ring | None, addresses: tuple[str, ...], *, loaded: bool = False
) -> tuple[Stage, tuple[StageFacts, ...]]:
    """Rank 0: check every stage's description, load unless that is done, and wait until all are ready."""
    layout = placement.layout
    if ring is not None and isinstance(engine, Mortal):
        engine.on_death(lambda text: ring.fail(ErrorCode.ENGINE_FAILED, f"rank 0 ({addresses[0]}): {text}"))
    own = describe_stage(layout, 0, engine)
    # A worker says what it can do once it has loaded; every other engine loads afterwards.
    limit_s = LOAD_S if "worker" in placement.engines else None
    described = [own] if ring is None else [own, *ring.descriptions(limit_s)]
    for rank, describe in enumerate(described):
        expected = Expected(rank, own.chunk, own.max_rows, own.parallel, own.context, own.draft_width, RELEASE)
        try:
            check_description(layout, expected, describe)
        except ProtocolError as error:
            assert ring is not None, "rank 0 suits itself"
            ring.fail(error.code, error.detail, rank)
            ring.check()
    started = time.monotonic()
    if not loaded:
        check_fits(placement, 0, engine)
        engine.load()
    ready = Ready(0, round((time.monotonic() - started) * 1000), 0, engine.weights_bytes)
    readies = [ready] if ring is None else [ready, *ring.readies()]
    gc.freeze()  # what is loaded stays: no collection need walk through it in the middle of a round
    facts = tuple(StageFacts(d, r, a) for d, r, a in zip(described, readies, addresses, strict=True))
    return Stage(engine), facts


def common_grain(facts: tuple[StageFacts, ...]) -> int:
    """Rows that suit every stage's engine."""
    return math.lcm(*(ENGINES[fact.describe.engine.name.lower()].grain for fact in facts))
