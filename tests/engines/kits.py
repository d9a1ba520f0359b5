"""Every engine as the contract suite drives it: how to make one for a tiny model, and what it declares it cannot do."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.engines.base import Engine, EngineConfig, Logits, ReadsTokens, Span, Whole
from ropeway.engines.registry import ENGINES, load_whole, make_engine
from ropeway.types import Boundary, RowDtype
from tiny_gguf import TinyModel, write_tiny
from tiny_llama import write_tiny_llama

LAYERS, WIDTH = 4, 64
CONTEXT, CHUNK, PARALLEL = 128, 64, 3
WORKER = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker", "--engine"])


def gguf(folder: Path, kind: GgmlType = GgmlType.F32) -> Path:
    return write_tiny(folder / f"tiny-{kind.name}.gguf", TinyModel(layers=LAYERS, type=kind))


@dataclass(frozen=True, slots=True)
class Kit:
    """One engine with one checkpoint. `lacks` are abilities that it says it has not, by the contract's method names."""

    name: str
    engine: str
    model: Callable[[Path], Path]
    lacks: frozenset[str] = frozenset()
    settings: dict[str, str] = field(default_factory=dict)
    row_dtype: RowDtype = RowDtype.F32

    def config(self, folder: Path) -> EngineConfig:
        """The whole model, one thread."""
        config = EngineConfig(
            str(self.model(folder)), 0, LAYERS, True, True, context=CONTEXT, parallel=PARALLEL, chunk=CHUNK, threads=1,
            boundary=Boundary(WIDTH, 1, self.row_dtype),
        )  # fmt: skip
        return replace(config, **self.settings)  # type: ignore[arg-type]

    def need(self) -> None:
        """Skip, by name, where what it computes with is not here."""
        for engine in {self.engine, *self.settings.get("worker_cmd", "").split()[-1:]} & set(ENGINES):
            for module in ENGINES[engine].modules:
                if importlib.util.find_spec(module) is None:
                    pytest.skip(f"the engine {engine} needs {module}")
            if engine == "tinygrad" and not os.environ.get("CPU_LLVM") and shutil.which("clang") is None:
                pytest.skip("tinygrad's CPU device needs clang")

    def stage(self, config: EngineConfig, first: int, end: int, *, embed: bool, head: bool) -> Engine:
        """A stage, loaded."""
        rank = 0 if embed else 1
        engine = make_engine(
            self.engine, replace(config, first=first, end=end, embed=embed, head=head, rank=rank, world=2)
        )
        engine.load()
        return engine

    def whole(self, config: EngineConfig) -> Whole:
        """What its splits must equal."""
        return load_whole(self.engine, config)


KITS = [
    Kit("llamacpp", "llamacpp", lambda folder: gguf(folder, GgmlType.Q8_0)),
    Kit("torch", "torch", gguf, settings={"dtype": "f32", "device": "cpu"}),
    Kit("torch-bf16", "torch", lambda folder: write_tiny_llama(folder / "llama", LAYERS, dtype="bfloat16"),
        settings={"device": "cpu"}, row_dtype=RowDtype.BF16),
    Kit("tinygrad", "tinygrad", gguf, settings={"dtype": "f32", "device": "cpu"}),
    Kit("mlx", "mlx", lambda folder: write_tiny_llama(folder / "llama", LAYERS), settings={"device": "cpu"}),
    Kit("mlx-bf16", "mlx", lambda folder: write_tiny_llama(folder / "llama", LAYERS, dtype="bfloat16"),
        settings={"device": "cpu"}, row_dtype=RowDtype.BF16),
    Kit("worker", "worker", lambda folder: gguf(folder, GgmlType.Q8_0), settings={"worker_cmd": f"{WORKER} llamacpp"}),
    Kit("worker-plain", "worker", lambda folder: gguf(folder, GgmlType.Q8_0),
        lacks=frozenset({"keep", "save"}), settings={"worker_cmd": f"{WORKER} llamacpp --lacks keep,save"}),
]  # fmt: skip


class Split:
    """Stages of one or several engines in this process; `forward` sends rows through all of them."""

    def __init__(self, stages: Sequence[Engine], *, chain: bool = False) -> None:
        self.stages, self.chain = list(stages), chain
        self._stack = ExitStack()
        for engine in stages:
            self._stack.enter_context(closing(engine))

    def forward(self, spans: Sequence[Span], tokens: Sequence[int], wanted: Sequence[int]) -> Logits:
        """Logits of the rows `wanted`, by way of every boundary."""
        size = self.stages[0].boundary.row_bytes()
        rows = memoryview(bytearray(size * len(tokens)))
        self.stages[0].embed(tokens, rows)
        last = self.stages[-1]
        for engine in self.stages:
            if isinstance(engine, ReadsTokens):
                engine.take_tokens(tokens)
        for engine in self.stages[:-1]:
            out = memoryview(bytearray(len(rows)))
            engine.forward(spans, rows, out)
            rows = out
        if self.chain or len(self.stages) == 1:
            return last.forward_head(spans, rows, wanted)
        back = memoryview(bytearray(size * len(wanted)))
        last.forward(spans, rows, back, wanted)
        return self.stages[0].head(spans, back, wanted)

    def prompt(self, slot: int, tokens: Sequence[int], *, first: int = 0, part: int = CHUNK) -> Logits:
        """Put a prompt into a slot by parts; the logits of its last row, [vocabulary]."""
        logits = np.empty((1, 1), np.float32)
        for at in range(first, len(tokens), part):
            piece = tokens[at : at + part]
            logits = self.forward([Span(slot, at, len(piece))], piece, [len(piece) - 1])
        last: Logits = logits[0]
        return last

    def keep(self, slot: int, length: int) -> None:
        for engine in self.stages:
            engine.keep(slot, length)

    def release(self, slot: int) -> None:
        for engine in self.stages:
            engine.release(slot)

    def close(self) -> None:
        self._stack.close()
