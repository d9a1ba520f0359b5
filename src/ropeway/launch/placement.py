"""From what a person types to a layout: the model, the cuts, and the engine's configuration of each rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ropeway.checkpoints.checkpoint import Format, format_of, locate_checkpoint, open_checkpoint
from ropeway.engines.base import Engine, EngineConfig, Whole
from ropeway.engines.registry import DEFAULT, engine_entry, load_whole, make_engine, preload_engine
from ropeway.types import Layout, RowDtype, SamplerAt, even_cuts, ranges_from_cuts

CHUNK: Final = 512
"""Rows a part that every stage is loaded for, unless a larger part is asked for."""


@dataclass(frozen=True, slots=True)
class Options:
    """The placement flags that every command shares."""

    model: str
    stages: int = 2
    cuts: tuple[int, ...] | None = None
    sampler: SamplerAt = SamplerAt.FIRST
    context: int = 4096
    parallel: int = 1
    chunk: int = CHUNK
    """Most rows a part that a stage is loaded for."""
    part: int = 0
    """Rows a part of a prompt; 0: chosen from measured times."""
    threads: int = 0
    gpu_layers: int = -1
    verify_weights: bool = False
    engines: tuple[str, ...] = ()
    """One engine for all stages, or one a stage; empty: what suits the checkpoint."""
    dtype: str = ""
    """What engines with a choice compute in: f32, bf16 or f16; empty: the checkpoint's own."""
    device: str = ""
    invariant: bool = False
    worker_cmd: str = ""
    """The command of the stages whose engine is worker (docs/worker.md)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A layout for one checkpoint, and what each rank needs to load its part."""

    path: Path
    layout: Layout
    options: Options
    reads_tokens: bool = False
    """Some layer reads token ids: the plans carry them."""

    @property
    def engines(self) -> tuple[str, ...]:
        """The name of every rank's engine."""
        world = self.layout.world
        named = self.options.engines or (DEFAULT[format_of(self.path)],)
        return named * world if len(named) == 1 else named

    def preload(self, rank: int) -> None:
        """Do the imports of a rank's engine, which take seconds, before it joins its ring."""
        preload_engine(self.engines[rank])

    def make_engine(self, rank: int) -> Engine:
        """The engine of `rank`, not loaded yet. Raises EngineError or CheckpointError."""
        return make_engine(self.engines[rank], self.engine_config(rank))

    def load_whole(self) -> Whole:
        """The whole model in this process, on rank 0's engine. Raises EngineError or CheckpointError."""
        return load_whole(self.engines[0], self.whole_config())

    def engine_config(self, rank: int) -> EngineConfig:
        """How `rank` loads its stage."""
        first, end = self.layout.ranges[rank]
        return EngineConfig(
            model=str(self.path),
            first=first,
            end=end,
            embed=rank == 0,
            head=rank == self.layout.head_rank,
            context=self.options.context,
            parallel=self.options.parallel,
            chunk=self.options.chunk,
            threads=self.options.threads,
            gpu_layers=self.options.gpu_layers,
            boundary=self.layout.boundary,
            dtype=self.options.dtype,
            device=self.options.device,
            invariant=self.options.invariant,
            worker_cmd=self.options.worker_cmd,
            rank=rank,
            world=self.layout.world,
        )

    def whole_config(self) -> EngineConfig:
        """How one process loads the whole model with the same shapes."""
        return replace(self.engine_config(0), first=0, end=self.layout.layers, head=True)


def place(options: Options) -> Placement:
    """Find the model and cut it. Of one that is elsewhere nothing but headers is fetched (launch/fetching.py).

    Raises CheckpointError, or ValueError naming the option that is wrong.
    """
    path = locate_checkpoint(options.model)
    checkpoint = open_checkpoint(path)
    layers = checkpoint.layers
    cuts = options.cuts if options.cuts is not None else even_cuts(layers, options.stages)
    boundary = checkpoint.boundary
    if options.dtype and checkpoint.format is Format.SAFETENSORS:
        boundary = replace(boundary, row_dtype=_row_dtype(options.dtype))
    layout = Layout(
        boundary=boundary,
        checkpoint=checkpoint.identity(verify_weights=options.verify_weights),
        layers=layers,
        ranges=ranges_from_cuts(layers, cuts),
        sampler=options.sampler,
    )
    for name, value in (("context", options.context), ("parallel", options.parallel), ("chunk", options.chunk)):
        if value < 1:
            raise ValueError(f"{name}: {value} is not at least 1")
    placement = Placement(path, layout, options, checkpoint.reads_tokens)
    _check_engines(placement, checkpoint.format)
    return placement


def _row_dtype(name: str) -> RowDtype:
    found = [dtype for dtype in RowDtype if dtype.label == name]
    if not found:
        raise ValueError(f"dtype: {name!r} is none of {', '.join(dtype.label for dtype in RowDtype)}")
    return found[0]


def _check_engines(placement: Placement, format: Format) -> None:
    """Refuse engines that cannot read the checkpoint or speak the boundary, and a list of another length."""
    named, world, boundary = placement.options.engines, placement.layout.world, placement.layout.boundary
    if len(named) not in (0, 1, world):
        raise ValueError(f"engines: {','.join(named)} names {len(named)} engines for {world} stages")
    if placement.options.dtype:
        _row_dtype(placement.options.dtype)
    for rank, name in enumerate(placement.engines):
        entry = engine_entry(name)
        if format not in entry.formats:
            reads = " and ".join(sorted(known.value for known in entry.formats))
            raise ValueError(f"engines: rank {rank}'s engine {name} reads {reads}, {placement.path} is {format.value}")
        if boundary.row_dtype not in entry.rows:
            speaks = " and ".join(sorted(dtype.label for dtype in entry.rows))
            raise ValueError(
                f"engines: rank {rank}'s engine {name} sends {speaks} rows, this boundary is {boundary.row_dtype.label}"
            )
