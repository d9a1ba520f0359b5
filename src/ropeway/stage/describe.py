"""A stage's description of itself (wire.md 6), and what rank 0 expects of it."""

from __future__ import annotations

from ropeway import __version__
from ropeway.engines.base import Engine
from ropeway.types import Layout
from ropeway.wire import Describe

RELEASE = f"ropeway {__version__}"
"""Both sides of a ring must be built from the same release; the engine's own version may differ."""


def describe_stage(layout: Layout, rank: int, engine: Engine) -> Describe:
    """What `rank` tells rank 0 before it loads its weights."""
    first, end = layout.ranges[rank]
    capacities = engine.capacities
    return Describe(
        rank=rank,
        world=layout.world,
        first=first,
        end=end,
        hidden=engine.boundary.hidden,
        planes=engine.boundary.planes,
        row_dtype=engine.boundary.row_dtype,
        kv_dtype=engine.kv_dtype,
        backend=engine.backend,
        engine=engine.kind,
        chunk=capacities.chunk,
        max_rows=capacities.max_rows,
        parallel=capacities.parallel,
        context=capacities.context,
        kv_rows=capacities.kv_rows,
        states=capacities.states,
        release=RELEASE,
    )
