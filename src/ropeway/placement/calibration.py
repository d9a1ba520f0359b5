"""Times this node's engine on a few layers of a model, by kind of layer, until the times agree. Measures.

Stages of several ranges are loaded side by side and timed in turn, batch by batch, so that what drifts (a clock, a
neighbour) drifts for all of them; fit.py takes the kinds apart. Only the layers that are timed are loaded, embeddings
and head once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from ropeway.engines.base import Engine, EngineConfig, Span
from ropeway.engines.registry import make_engine
from ropeway.engines.rows import from_f32
from ropeway.placement.facts import KV_SHARE, Costs, Model, Node
from ropeway.placement.fit import STAGE, Condition, Sample, fit_costs, through, usual, widest_spread
from ropeway.placement.machine import limit_of, resident_bytes, watch_others
from ropeway.placement.ranges import kinds_apart, kinds_in, ranges_to_time

LIMIT_S: Final = 30.0
CALM: Final = 0.03
"""A spread that is small enough to stop at."""
LEAST_CYCLES: Final = 3
CLEARED_BYTES: Final = 128 << 20
"""Read between two batches, it leaves none of a stage's weights in a processor's caches."""
SPARE_LAYERS: Final = {"llamacpp": 1}
"""Layers behind a stage's own whose KV an engine keeps too (docs/architecture.md, "How llama.cpp runs")."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is timed: decode with 1 row and `streams` rows at `short` and `deep` positions, and parts of `part` rows.

    `shared`: other stages run on this machine too, so a stage's weights are out of the caches when its turn comes.
    """

    engine: str
    streams: int = 4
    part: int = 256
    short: int = 64
    deep: int = 768
    steps: int = 6
    threads: int = 0
    gpu_layers: int = -1
    dtype: str = ""
    device: str = ""
    shared: bool = False
    limit_s: float = LIMIT_S

    def __post_init__(self) -> None:
        for name in ("streams", "part", "short", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not at least 1")
        if self.deep < self.short + self.part:
            raise ValueError(
                f"deep: {self.deep} is not at least {self.short + self.part}, a part behind the short depth"
            )


@dataclass(slots=True)
class Timed:
    """What was measured so far."""

    decode: list[Sample] = field(default_factory=list)
    prompt: list[Sample] = field(default_factory=list)
    embed: list[tuple[Condition, float]] = field(default_factory=list)
    head: list[tuple[Condition, float]] = field(default_factory=list)
    rested: list[float] = field(default_factory=list)
    """Decode steps after a rest of their own length by such without, on the largest stage."""
    cycles: int = 0

    @property
    def spread(self) -> float:
        """The widest of all conditions on the largest stage."""
        return max(widest_spread(self.decode), widest_spread(self.prompt))


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibrated node, and how it went: seconds, spread, the share of the machine that others had."""

    node: Node
    seconds: float
    cycles: int
    others: float | None
    ranges: tuple[tuple[int, int], ...]
    weights_bytes: int

    @property
    def doubts(self) -> str:
        """Why not to trust it, for people; empty where it is good."""
        found = []
        if self.node.spread > 3 * CALM:
            found.append(f"times differ by {self.node.spread:.0%}")
        if self.others is not None and self.others > 0.1:
            found.append(f"other processes had {self.others:.0%} of the machine")
        return " and ".join(found) + ": calibrate again when it is quiet" if found else ""


def calibrate(
    name: str, path: Path, model: Model, memory_bytes: int, settings: Settings, cut_every: int = 1
) -> Calibration:
    """Load a few layers, time them, and give the node. Raises EngineError, CheckpointError.

    Kinds that the engine's cuts never part are measured as one, "*".
    """
    started = time.monotonic()
    ranges = ranges_to_time(model, cut_every)
    apart = kinds_apart(model, ranges)
    clear = np.ones(CLEARED_BYTES // 8) if settings.shared else None
    before = resident_bytes()
    with watch_others() as busy, _stages(path, ranges, settings) as stages:
        timed = Timed()
        while timed.cycles < LEAST_CYCLES or timed.spread > CALM:
            begun = time.monotonic()
            cycles = []
            for (first, end), engine in zip(ranges, stages, strict=True):
                kinds = kinds_in(model, first, end) if apart else {"*": end - first}
                cycles.append(_cycle(_Runner(engine, settings, clear), kinds, settings, timed, engine is stages[0]))
            for _ in zip_longest(*cycles):
                pass
            timed.cycles += 1
            if time.monotonic() - started + (time.monotonic() - begun) > settings.limit_s and timed.cycles > 1:
                break
        held = resident_bytes() - before
        weights = sum(engine.weights_bytes for engine in stages)
        backend = stages[0].backend.name.lower()
    node = replace(_node(name, timed, settings, limit_of(memory_bytes), backend), cut_every=cut_every)
    states = sum(_kv_bytes(model, settings, end - first) for first, end in ranges)
    node = replace(node, overhead_bytes=max(0, held - weights - states) // len(ranges))
    seconds = time.monotonic() - started
    return Calibration(node, seconds, timed.cycles, busy.others, tuple(ranges), weights)


@contextmanager
def _stages(path: Path, ranges: Sequence[tuple[int, int]], settings: Settings) -> Iterator[list[Engine]]:
    """The stages, loaded; the first has the embeddings and the head."""
    engines: list[Engine] = []
    try:
        for first, end in ranges:
            config = EngineConfig(
                str(path),
                first,
                end,
                embed=not engines,
                head=not engines,
                context=settings.deep + 4 * settings.steps,
                parallel=settings.streams,
                chunk=settings.part,
                threads=settings.threads,
                gpu_layers=settings.gpu_layers,
                dtype=settings.dtype,
                device=settings.device,
            )
            engine = make_engine(settings.engine, config)
            engines.append(engine)
            engine.load()
        yield engines
    finally:
        for engine in engines:
            engine.close()


class _Runner:
    """One engine with rows to feed it; positions of each slot are kept here. Reading `clear` clears the caches."""

    def __init__(self, engine: Engine, settings: Settings, clear: np.ndarray | None) -> None:
        self._engine = engine
        self._clear = clear
        most_rows = max(settings.part, settings.streams)
        self._row_bytes = engine.boundary.row_bytes()
        values = np.random.default_rng(7).standard_normal(engine.boundary.planes * engine.boundary.hidden * most_rows)
        rows = from_f32(values.astype(np.float32) * np.float32(0.1), engine.boundary.row_dtype)
        self._rows = memoryview(rows)
        self._out = memoryview(bytearray(len(rows)))
        self._at: dict[int, int] = {}

    def run(self, *batch: tuple[int, int]) -> float:
        """Run (slot, rows) behind what each slot holds; the milliseconds that it took."""
        spans = [Span(slot, self._at.get(slot, 0), rows) for slot, rows in batch]
        size = sum(span.rows for span in spans) * self._row_bytes
        self._cool()
        started = time.perf_counter()
        self._engine.forward(spans, self._rows[:size], self._out[:size])
        ms = (time.perf_counter() - started) * 1e3
        for span in spans:
            self._at[span.slot] = span.first + span.rows
        return ms

    def release(self) -> None:
        """Forget every slot."""
        for slot in self._at:
            self._engine.release(slot)
        self._at.clear()

    def head_ms(self, rows: int) -> float:
        """Milliseconds of norm and head over `rows` rows."""
        spans = [Span(0, 0, rows)]
        self._cool()
        started = time.perf_counter()
        self._engine.head(spans, self._rows[: rows * self._row_bytes], list(range(rows)))
        return (time.perf_counter() - started) * 1e3

    def embed_ms(self, rows: int) -> float:
        """Milliseconds of looking `rows` embedding rows up."""
        started = time.perf_counter()
        self._engine.embed([1 + i % 250 for i in range(rows)], self._out[: rows * self._row_bytes])
        return (time.perf_counter() - started) * 1e3

    def _cool(self) -> None:
        if self._clear is not None:
            self._clear.max()


def _cycle(runner: _Runner, kinds: dict[str, int], settings: Settings, timed: Timed, has_ends: bool) -> Iterator[None]:
    """Every condition once (a decode step `steps` times) on one stage.

    Yields between two of them, so that the stages take turns: a machine that is slow for a second is slow for all.
    """
    short, deep, part, steps = settings.short, settings.deep, settings.part, settings.steps

    def prompt(slot: int, first: int, end: int) -> Iterator[None]:
        """Rows first..end of a slot, part by part; every part is timed, as it has to be run anyway."""
        for at in range(first, end, part):
            rows = min(part, end - at)
            timed.prompt.append(Sample(kinds, Condition(rows, at + (rows + 1) / 2), runner.run((slot, rows))))
            yield

    def decode(slots: int, depth: int) -> None:
        batch = [(slot, 1) for slot in range(slots)]
        for _ in range(steps):
            timed.decode.append(Sample(kinds, Condition(slots, depth), runner.run(*batch)))

    few = max(1, part // 4)
    yield from prompt(0, 0, few)
    runner.release()
    for slot in range(settings.streams):
        yield from prompt(slot, 0, short)
    decode(1, short)
    timed.rested += _rested(runner, timed.decode[-1].ms, steps)
    yield
    if settings.streams > 1:
        decode(settings.streams, short)
        yield
    runner.release()
    yield from prompt(0, 0, deep)
    decode(1, deep)
    runner.release()
    if has_ends:
        for rows in (1, settings.streams):
            timed.head += [(Condition(rows, 0), runner.head_ms(rows)) for _ in range(steps)]
        for rows in (1, part):
            timed.embed += [(Condition(rows, 0), runner.embed_ms(rows)) for _ in range(steps)]


def _rested(runner: _Runner, rest_ms: float, steps: int) -> list[float]:
    """A decode step after a rest, as between two tokens of a ring, by one right behind it."""
    found = []
    for _ in range(steps):
        time.sleep(rest_ms / 1e3)
        rested = runner.run((0, 1))
        found.append(rested / runner.run((0, 1)))
    return found


def _node(name: str, timed: Timed, settings: Settings, limit_bytes: int, backend: str) -> Node:
    step, part = usual(timed.decode), usual(timed.prompt)
    decode = {kind: cost.times(step) for kind, cost in fit_costs(timed.decode).items()}
    prompt = {kind: cost.times(part) for kind, cost in fit_costs(timed.prompt).items()}
    return Node(
        name=name,
        limit_bytes=limit_bytes,
        layers={kind: Costs(cost, prompt[kind]) for kind, cost in decode.items() if kind != STAGE},
        stage=Costs(decode[STAGE], prompt[STAGE]),
        embed=through(timed.embed).times(step),
        head=through(timed.head).times(step),
        backend=backend,
        engine=settings.engine,
        spare_layers=SPARE_LAYERS.get(settings.engine, 0),
        rested=max(1.0, median(timed.rested)),
        spread=timed.spread,
    )


def _kv_bytes(model: Model, settings: Settings, layers: int) -> int:
    """KV of a stage as it was loaded here."""
    widest = max(layer.kv_row_bytes for layer in model.layers)
    held = layers + SPARE_LAYERS.get(settings.engine, 0)
    return round(held * widest * KV_SHARE["f16"] * (settings.deep + 4 * settings.steps) * settings.streams)
