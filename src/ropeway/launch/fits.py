"""A stage's memory checked where it is about to be loaded: what placement was told of a node may have been wrong."""

from __future__ import annotations

from typing import Final

from ropeway.checkpoints.checkpoint import open_checkpoint
from ropeway.engines.base import Engine, EngineError
from ropeway.launch.placement import Placement
from ropeway.placement.machine import memory_bytes
from ropeway.types import Backend

MOST_KV_VALUES: Final = 2
"""Keys and values of a position are at most so many times as wide as a row, so most headers need not be read."""


def check_fits(placement: Placement, rank: int, engine: Engine, total_bytes: int | None = None) -> None:
    """Raise EngineError, with numbers, where weights and KV are more than all of this machine's memory.

    Placement keeps the system's floor free; who cuts by hand may go further. Only for engines on the CPU: a device's
    memory is known to its engine alone, which says so by itself.
    """
    if engine.backend is not Backend.CPU:
        return
    total = memory_bytes() if total_bytes is None else total_bytes
    first, end = placement.layout.ranges[rank]
    cells = engine.capacities.kv_rows * (end - first)
    needed = engine.weights_bytes
    if needed + cells * MOST_KV_VALUES * placement.layout.boundary.hidden * 2 > total:
        needed += cells * open_checkpoint(placement.path).kv_row_bytes
    if needed > total:
        raise EngineError(
            f"layers {first}..{end} need {needed / 1e9:.2f} GB of weights and KV, and this machine has "
            f"{total / 1e9:.2f} GB of memory: give it fewer layers, or lower --context or --parallel"
        )
