"""The whole model that a placement is held against: which engine, dtype and device, and how it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ropeway.checkpoints.checkpoint import format_of
from ropeway.engines.base import Whole
from ropeway.engines.registry import DEFAULT, engine_entry, load_whole
from ropeway.launch.placement import Placement


@dataclass(frozen=True, slots=True)
class Reference:
    """An engine by name; an empty dtype or device is the engine's own choice."""

    engine: str
    dtype: str = ""
    device: str = ""


def check_reference(engine: str, path: Path) -> None:
    """Raises ValueError for an engine that there is not, or that does not read the checkpoint; none named is right."""
    if engine and format_of(path) not in engine_entry(engine).formats:
        reads = " and ".join(sorted(known.value for known in engine_entry(engine).formats))
        raise ValueError(f"reference: the engine {engine} reads {reads}, {path} is {format_of(path).value}")


def reference_of(placement: Placement, engine: str = "", dtype: str = "", device: str = "") -> Reference:
    """What was asked for; else the placement's own engine and settings where all stages share one, else the default."""
    engines = set(placement.engines)
    options = placement.options
    if not engine and len(engines) == 1:
        return Reference(engines.pop(), dtype or options.dtype, device or options.device)
    return Reference(engine or DEFAULT[format_of(placement.path)], dtype, device)


def load_reference(placement: Placement, reference: Reference | None = None) -> Whole:
    """Load it in this process, with the placement's shapes. Raises EngineError, CheckpointError or ValueError."""
    reference = reference_of(placement) if reference is None else reference
    config = replace(placement.whole_config(), dtype=reference.dtype, device=reference.device)
    if {reference.engine} != set(placement.engines) or reference.dtype != placement.options.dtype:
        config = replace(config, boundary=None)  # the reference's rows never leave it
    return load_whole(reference.engine, config)
