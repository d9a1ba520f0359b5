"""tinygrad on tiny GGUFs: llama.cpp's logits within rounding, prompts by any parts of 32, families refused by name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.engines.base import Engine, EngineConfig, EngineError, Logits, Span
from ropeway.engines.llamacpp.engine import LlamaCppEngine
from ropeway.types import Backend, KvDtype
from tiny_gguf import VOCABULARY, TinyModel, write_tiny

pytest.importorskip("tinygrad", reason="the engine tinygrad needs tinygrad")
if not os.environ.get("CPU_LLVM") and shutil.which("clang") is None:
    pytest.skip("tinygrad's CPU device needs clang", allow_module_level=True)

from ropeway.engines.tinygrad.engine import BLOCK, TinygradEngine, device_name

LAYERS = 2
Make = Callable[..., Engine]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    made: list[Engine] = []

    def engine(kind: type[Engine], model: TinyModel, block: int | None = None) -> Engine:
        path = write_tiny(tmp_path / f"{model.architecture}.gguf", model)
        dtype = "f32" if kind is TinygradEngine else ""
        config = EngineConfig(
            str(path), 0, LAYERS, True, True, context=128, parallel=2, chunk=128, threads=1, dtype=dtype
        )
        made.append(kind(config) if block is None else TinygradEngine(config, block=block))  # type: ignore[call-arg]
        made[-1].load()
        return made[-1]

    yield engine
    for one in made:
        one.close()


def prompt(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, VOCABULARY, count)]


def logits(engine: Engine, slot: int, first: int, tokens: list[int]) -> Logits:
    """Every row's logits."""
    rows = memoryview(bytearray(len(tokens) * engine.boundary.row_bytes()))
    engine.embed(tokens, rows)
    return engine.forward_head([Span(slot, first, len(tokens))], rows, range(len(tokens)))


@pytest.mark.parametrize(
    "model",
    [
        TinyModel("llama", LAYERS, GgmlType.F32),
        TinyModel("llama", LAYERS, GgmlType.F32, rope_factors=True),
        TinyModel("llama", LAYERS, GgmlType.F32, tied=True),
        TinyModel("qwen3", LAYERS, GgmlType.F32),
    ],
    ids=["llama", "rope factors", "tied", "qwen3"],
)
def test_it_computes_what_llamacpp_computes(make: Make, model: TinyModel) -> None:
    """KV is f16 in both; what differs is the order of sums, and the rounding of K and V before it."""
    ours, theirs = make(TinygradEngine, model), make(LlamaCppEngine, model)
    tokens = prompt(1, 70)
    for first, part in ((0, tokens[:33]), (33, tokens[33:34]), (34, tokens[34:])):
        a, b = logits(ours, 0, first, part), logits(theirs, 0, first, part)
        assert np.abs(a - b).max() < 0.02, first
        assert (a.argmax(axis=1) == b.argmax(axis=1)).mean() > 0.97


@pytest.mark.parametrize("kind", [GgmlType.Q8_0, GgmlType.Q4_1, GgmlType.F16, GgmlType.BF16], ids=lambda k: k.name)
def test_matrix_types(make: Make, kind: GgmlType) -> None:
    model = TinyModel("llama", LAYERS, kind)
    ours, theirs = make(TinygradEngine, model), make(LlamaCppEngine, model)
    a, b = logits(ours, 0, 0, prompt(2, 20)), logits(theirs, 0, 0, prompt(2, 20))
    assert np.abs(a - b).max() < 0.3, "llama.cpp rounds the rows to 8 bits for its products"


def test_a_prompt_by_any_parts_of_a_block(make: Make) -> None:
    """Blocks are for devices that like them; the rows are the same within rounding."""
    model = TinyModel("llama", LAYERS, GgmlType.F32)
    engine, by_rows = make(TinygradEngine, model, BLOCK), make(TinygradEngine, model)
    tokens = prompt(3, 100)
    at_once = logits(engine, 0, 0, tokens)
    parts = np.concatenate(
        [logits(engine, 1, at, tokens[at : at + size]) for at, size in ((0, BLOCK), (BLOCK, 2 * BLOCK), (96, 4))]
    )
    assert parts.tobytes() == at_once.tobytes()
    assert np.abs(logits(by_rows, 0, 0, tokens) - at_once).max() < 0.01


def test_on_a_cpu_a_rows_bits_are_its_own(make: Make) -> None:
    engine = make(TinygradEngine, TinyModel("llama", LAYERS, GgmlType.Q8_0))
    tokens = prompt(4, 12)
    together = logits(engine, 0, 0, tokens)
    apart = np.concatenate([logits(engine, 1, at, [token]) for at, token in enumerate(tokens)])
    assert together.tobytes() == apart.tobytes()


def test_what_it_says_of_itself(make: Make) -> None:
    engine = make(TinygradEngine, TinyModel("llama", LAYERS, GgmlType.F32))
    assert (engine.backend, engine.kv_dtype) == (Backend.CPU, KvDtype.F16)
    assert engine.weights_bytes > 0


def test_a_family_that_it_does_not_compute_is_refused_by_name(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "q.gguf", TinyModel("qwen2", LAYERS))
    with pytest.raises(CheckpointError, match="knows llama, qwen3, qwen3moe, not qwen2"):
        TinygradEngine(EngineConfig(str(path), 0, LAYERS, True, True))


def test_a_state_of_another_length_is_refused(make: Make) -> None:
    engine = make(TinygradEngine, TinyModel("llama", LAYERS, GgmlType.F32))
    logits(engine, 0, 0, prompt(4, 5))
    state = engine.save(0)
    with pytest.raises(EngineError, match="refused the saved state"):
        engine.restore(1, state[:-1])


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(EngineError, match="cannot open the device nothing"):
        device_name("nothing")


def test_the_compiler_that_its_cpu_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CPU_LLVM", raising=False)
    monkeypatch.setenv("CC", "/no/such/compiler")
    with pytest.raises(EngineError, match="needs clang"):
        device_name("cpu")


def test_it_closes_once_with_nothing_loaded(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "t.gguf", TinyModel("llama", LAYERS))
    with closing(TinygradEngine(EngineConfig(str(path), 0, LAYERS, True, True))) as engine, pytest.raises(EngineError):
        engine.head([Span(0, 0, 1)], memoryview(bytearray(256)), [0])
