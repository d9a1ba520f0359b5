"""Calibrations that are kept: one file a checkpoint, engine, version, device and shape; the rest is measured anew."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from ropeway.checkpoints.cache import cache_directory, cached_file
from ropeway.placement.calibration import Calibration, Settings
from ropeway.placement.inventory import node_from, node_json
from ropeway.placement.machine import Machine

KEPT: Final = "calibrations"
MEASURED: Final = 2
"""Counts up where calibrations come to mean something else (2: what batches usually take)."""
PACKAGES: Final = {"llamacpp": "xllamacpp", "torch": "torch", "mlx": "mlx", "tinygrad": "tinygrad"}
"""The package whose version is an engine's."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A calibration, and whether it was made just now."""

    calibration: Calibration
    path: Path
    fresh: bool


def engine_version(engine: str) -> str:
    """The installed version of an engine; empty where it has none."""
    try:
        return importlib.metadata.version(PACKAGES.get(engine, engine))
    except importlib.metadata.PackageNotFoundError:
        return ""


def kept(
    name: str, identity: str, machine: Machine, settings: Settings, measure: Callable[[], Calibration], *, again: bool
) -> Kept:
    """The calibration of a checkpoint (by its identity) on this machine, measured where there is none or `again`.

    Raises what `measure` does, and CheckpointError where the cache cannot be written.
    """
    path = cache_directory() / KEPT / f"{key(identity, machine, settings)}.json"
    if not again and (found := _read(path)) is not None:
        return Kept(replace(found, node=replace(found.node, name=name)), path, False)
    calibration = measure()
    value = {
        "node": node_json(calibration.node, identity),
        "seconds": calibration.seconds,
        "cycles": calibration.cycles,
        "others": calibration.others,
        "ranges": calibration.ranges,
        "weights_bytes": calibration.weights_bytes,
    }
    text = json.dumps(value, indent=1).encode()
    path.unlink(missing_ok=True)

    def write(file: BinaryIO) -> None:
        file.write(text)

    cached_file(path, len(text), write)
    return Kept(calibration, path, True)


def key(identity: str, machine: Machine, settings: Settings) -> str:
    """32 hex digits that change with the checkpoint, the engine and its version, the device, and what is timed."""
    value = {
        **asdict(replace(settings, limit_s=0.0)),
        "measured": MEASURED,
        "checkpoint": identity,
        "version": engine_version(settings.engine),
        "processor": machine.processor,
        "cores": machine.cores,
        "memory": machine.memory_bytes,
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _read(path: Path) -> Calibration | None:
    """What is kept; None where there is nothing, or nothing that can be read."""
    try:
        value = json.loads(path.read_text())
        return Calibration(
            node_from(value["node"]),
            float(value["seconds"]),
            int(value["cycles"]),
            None if value["others"] is None else float(value["others"]),
            tuple((int(first), int(end)) for first, end in value["ranges"]),
            int(value["weights_bytes"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
