"""Rings of unlike engines in this process, and the recurrent states that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engines.kits import Split
from ropeway.engines.base import Engine, EngineConfig, Span
from ropeway.engines.registry import make_engine
from ropeway.types import EngineKind
from ropeway.verify.compare import Comparison

Array = npt.NDArray[np.float32]


def ring(
    config: EngineConfig, engines: Sequence[str], settings: dict[str, dict[str, str]], cuts: Sequence[int]
) -> Split:
    """Stages of these engines, loaded, in a ring; `settings` are what each engine wants besides."""
    edges = (0, *cuts, config.end)
    stages = []
    for rank, name in enumerate(engines):
        stage = replace(
            config, first=edges[rank], end=edges[rank + 1], embed=rank == 0, head=rank == 0,
            rank=rank, world=len(engines), **settings.get(name, {}),  # type: ignore[arg-type]
        )  # fmt: skip
        engine = make_engine(name, stage)
        engine.load()
        stages.append(engine)
    return Split(stages)


def recurrent_states(engine: Engine, slot: int) -> list[Array]:
    """The matrix of each recurrent layer of a stage, [heads, keys, values], in order."""
    if engine.kind is EngineKind.MLX:
        from ropeway.engines.mlx.engine import MlxEngine

        assert isinstance(engine, MlxEngine)
        caches = engine._streams[slot]._caches
        return [np.array(c[1])[0].swapaxes(1, 2) for c in caches if type(c).__name__ == "ArraysCache"]
    from ropeway.engines.torch.engine import TorchEngine

    assert isinstance(engine, TorchEngine)
    states = engine._slots[slot].states
    found = [states[layer].matrix for layer in sorted(states)]
    return [matrix[0].float().numpy() for matrix in found if matrix is not None]


@dataclass(frozen=True, slots=True)
class Report:
    """A long text through a ring and through the whole: the comparison, and how far states are apart at positions.

    `states[position]` has, for each recurrent layer, |difference| / |whole's|, by Frobenius norms.
    """

    comparison: Comparison
    states: dict[int, list[float]]


def report(split: Split, whole: Split, tokens: Sequence[int], part: int, positions: Sequence[int]) -> Report:
    """Teacher-forced: the same tokens into both, every row compared. `positions` are multiples of `part`."""
    comparison = Comparison()
    states: dict[int, list[float]] = {}
    for at in range(0, len(tokens), part):
        piece = tokens[at : at + part]
        batch = [Span(0, at, len(piece))], piece, range(len(piece))
        for ours, theirs in zip(split.forward(*batch), whole.forward(*batch), strict=True):
            comparison.add(ours, theirs)
        if at + part in positions:
            pairs = zip(_all_states(split), _all_states(whole), strict=True)
            states[at + part] = [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs]
    return Report(comparison, states)


def _all_states(split: Split) -> list[Array]:
    return [matrix for engine in split.stages for matrix in recurrent_states(engine, 0)]


def whole_of(config: EngineConfig, engine: str, settings: dict[str, str]) -> Split:
    """One stage of everything."""
    return ring(config, [engine], {engine: settings}, [])
