"""From what a person types to a layout: the model, the cuts, and the engine's configuration of each rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ropeway.checkpoints.demo import resolve_model
from ropeway.checkpoints.families import layer_count
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.identity import checkpoint_identity
from ropeway.engines.base import EngineConfig
from ropeway.types import Boundary, Layout, RowDtype, SamplerAt, even_cuts, ranges_from_cuts

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


@dataclass(frozen=True, slots=True)
class Placement:
    """A layout for one checkpoint, and what each rank needs to load its part."""

    path: Path
    layout: Layout
    options: Options

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
        )

    def whole_config(self) -> EngineConfig:
        """How one process loads the whole model with the same shapes."""
        return replace(self.engine_config(0), first=0, end=self.layout.layers, head=True)


def place(options: Options) -> Placement:
    """Find the model and cut it. Raises CheckpointError, or ValueError naming the option that is wrong."""
    path = resolve_model(options.model)
    gguf = GgufFile.open(path)
    layers = layer_count(gguf)
    cuts = options.cuts if options.cuts is not None else even_cuts(layers, options.stages)
    layout = Layout(
        boundary=Boundary(gguf.metadata.integer(f"{gguf.architecture}.embedding_length"), 1, RowDtype.F32),
        checkpoint=checkpoint_identity(gguf, verify_weights=options.verify_weights),
        layers=layers,
        ranges=ranges_from_cuts(layers, cuts),
        sampler=options.sampler,
    )
    for name, value in (("context", options.context), ("parallel", options.parallel), ("chunk", options.chunk)):
        if value < 1:
            raise ValueError(f"{name}: {value} is not at least 1")
    return Placement(path, layout, options)
