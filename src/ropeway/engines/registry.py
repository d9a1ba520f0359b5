"""The engines by name: what each reads and speaks, and how it is made. Nothing heavy is imported before it is named.

To add an engine: an entry in `ENGINES`, with functions that import it inside.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ropeway.checkpoints.checkpoint import Format
from ropeway.engines.base import Engine, EngineConfig, EngineError, Whole
from ropeway.types import EngineKind, RowDtype


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """One engine. `make` is cheap (the engine loads later); `whole` loads a whole model for comparisons.

    `rows` are the dtypes of rows that it can take and give; it converts at its own edge. `grain`: parts of prompts that
    are multiples of so many rows have the same bits whatever their size. `stands_alone` says whether rows of a stream
    that run together on the CPU have the bits that each has alone. `modules` must be installed, by the extra `extra`.
    """

    kind: EngineKind
    formats: frozenset[Format]
    rows: frozenset[RowDtype]
    make: Callable[[EngineConfig], Engine]
    whole: Callable[[EngineConfig], Whole]
    grain: int = 1
    stands_alone: Callable[[EngineConfig], bool] = lambda _: False
    modules: tuple[str, ...] = ()
    extra: str = ""
    preload: Callable[[], None] = lambda: None
    """Import what takes seconds: Python can do nothing beside it, and a rank that says nothing for long is lost."""


def _llamacpp(config: EngineConfig) -> Engine:
    from ropeway.engines.llamacpp.engine import LlamaCppEngine

    return LlamaCppEngine(config)


def _llamacpp_whole(config: EngineConfig) -> Whole:
    from ropeway.engines.llamacpp.whole import WholeModel

    return WholeModel(config)


def _llamacpp_alone(config: EngineConfig) -> bool:
    from ropeway.checkpoints.gguf_file import GgufFile
    from ropeway.engines.llamacpp.alone import rows_stand_alone

    return rows_stand_alone(GgufFile.open(config.model), config.threads, config.context)


def _torch(config: EngineConfig) -> Engine:
    from ropeway.engines.torch.engine import TorchEngine

    return TorchEngine(config)


def _torch_preload() -> None:
    import ropeway.engines.torch.engine  # noqa: F401


def _torch_whole(config: EngineConfig) -> Whole:
    from ropeway.engines.whole import EngineWhole

    return EngineWhole(_torch(config))


def _worker(config: EngineConfig) -> Engine:
    from ropeway.engines.worker.engine import WorkerEngine

    return WorkerEngine(config)


def _worker_whole(config: EngineConfig) -> Whole:
    from ropeway.engines.whole import EngineWhole

    return EngineWhole(_worker(config))


def _tinygrad(config: EngineConfig) -> Engine:
    if config.threads:
        os.environ.setdefault("CPU_COUNT", str(config.threads))  # tinygrad reads it once, when it is imported
    from ropeway.engines.tinygrad.engine import TinygradEngine

    return TinygradEngine(config)


def _tinygrad_whole(config: EngineConfig) -> Whole:
    from ropeway.engines.whole import EngineWhole

    return EngineWhole(_tinygrad(config))


def _mlx(config: EngineConfig) -> Engine:
    from ropeway.engines.mlx.engine import MlxEngine

    return MlxEngine(config)


def _mlx_whole(config: EngineConfig) -> Whole:
    from ropeway.engines.whole import EngineWhole

    return EngineWhole(_mlx(config))


_ALL_ROWS: Final = frozenset(RowDtype)

ENGINES: Final = {
    "llamacpp": EngineEntry(
        EngineKind.LLAMACPP,
        frozenset({Format.GGUF}),
        frozenset({RowDtype.F32}),
        _llamacpp,
        _llamacpp_whole,
        grain=64,
        stands_alone=_llamacpp_alone,
    ),
    "torch": EngineEntry(
        EngineKind.TORCH,
        frozenset({Format.GGUF, Format.SAFETENSORS}),
        _ALL_ROWS,
        _torch,
        _torch_whole,
        grain=64,
        stands_alone=lambda config: config.invariant,
        modules=("torch", "transformers", "tokenizers"),
        extra="torch",
        preload=_torch_preload,
    ),
    "tinygrad": EngineEntry(
        EngineKind.TINYGRAD,
        frozenset({Format.GGUF}),
        frozenset({RowDtype.F32}),
        _tinygrad,
        _tinygrad_whole,
        grain=32,
        stands_alone=lambda _: True,
        modules=("tinygrad",),
        extra="tinygrad",
    ),
    "mlx": EngineEntry(
        EngineKind.MLX,
        frozenset({Format.SAFETENSORS}),
        _ALL_ROWS,
        _mlx,
        _mlx_whole,
        modules=("mlx", "mlx_lm"),
        extra="mlx",
    ),
    "worker": EngineEntry(
        EngineKind.WORKER, frozenset({Format.GGUF, Format.SAFETENSORS}), _ALL_ROWS, _worker, _worker_whole
    ),
}
"""By the name of `--engine`, which is also how `EngineKind` spells it."""

DEFAULT: Final = {Format.GGUF: "llamacpp", Format.SAFETENSORS: "torch"}
"""The engine of a checkpoint where none is named."""


def engine_entry(name: str) -> EngineEntry:
    """The entry of `name`. Raises ValueError for an unknown name, with those that there are."""
    entry = ENGINES.get(name)
    if entry is None:
        raise ValueError(f"engine: {name!r} is none of {', '.join(ENGINES)}")
    return entry


def preload_engine(name: str) -> None:
    """Do the imports of an engine, where it is installed: before a ring is joined. Raises ValueError."""
    entry = engine_entry(name)
    if all(importlib.util.find_spec(module) is not None for module in entry.modules):
        entry.preload()


def make_engine(name: str, config: EngineConfig) -> Engine:
    """The engine of a stage, not loaded yet. Raises ValueError, EngineError or CheckpointError."""
    entry = engine_entry(name)
    _installed(name, entry)
    return entry.make(config)


def load_whole(name: str, config: EngineConfig) -> Whole:
    """The whole model in one process. Raises ValueError, EngineError or CheckpointError."""
    entry = engine_entry(name)
    _installed(name, entry)
    return entry.whole(config)


def _installed(name: str, entry: EngineEntry) -> None:
    for module in entry.modules:
        if importlib.util.find_spec(module) is None:
            raise EngineError(
                f"the engine {name} needs {module}, which is not installed: pip install 'ropeway[{entry.extra}]'"
            )
