"""Rings of unlike engines on one checkpoint: close to the whole, the same bits each time, states that stay together."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from engines.kits import LAYERS, Split, gguf
from engines.mixed import report, ring, whole_of
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.engines.base import EngineConfig, Span, Whole
from ropeway.engines.registry import ENGINES, load_whole
from ropeway.types import Boundary, RowDtype
from tiny_gguf import VOCABULARY
from tiny_llama import write_tiny_llama

WORKER = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker", "--engine", "llamacpp"])
SETTINGS = {
    "torch": {"dtype": "f32", "device": "cpu"},
    "tinygrad": {"dtype": "f32", "device": "cpu"},
    "mlx": {"device": "cpu"},
    "worker": {"worker_cmd": WORKER},
}
GGUF_ENGINES = ("llamacpp", "torch", "tinygrad", "worker")
DIRECTORY_ENGINES = ("torch", "mlx")
RUNS = 10


def need(engines: Sequence[str]) -> None:
    for engine in engines:
        for module in ENGINES[engine].modules:
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"the engine {engine} needs {module}")
    if "tinygrad" in engines and not os.environ.get("CPU_LLVM") and shutil.which("clang") is None:
        pytest.skip("tinygrad's CPU device needs clang")


def prompt(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, VOCABULARY, count)]


def config_of(path: Path, layers: int = LAYERS) -> EngineConfig:
    return EngineConfig(
        str(path),
        0,
        layers,
        True,
        True,
        context=128,
        parallel=1,
        chunk=64,
        threads=1,
        boundary=Boundary(64, 1, RowDtype.F32),
    )


def bits(model: Split | Whole) -> bytes:
    """A prompt by parts and six greedy steps behind it, from an empty slot."""
    forward = model.forward
    found = b""
    tokens = prompt(1, 40)
    logits = forward([Span(0, 0, 32)], tokens[:32], [31])
    logits = forward([Span(0, 32, 8)], tokens[32:], [7])
    for position in range(40, 46):
        found += logits.tobytes()
        logits = forward([Span(0, position, 1)], [int(logits[0].argmax())], [0])
    model.release(0)
    return found + logits.tobytes()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mixed")


def check(path: Path, engines: Sequence[str], reference: str, within: float, cache: Path) -> None:
    need([*engines, reference])
    config = config_of(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROPEWAY_CACHE", str(cache / "cache"))
        cuts = [1, 3] if len(engines) == 3 else [2]
        with closing(ring(config, engines, SETTINGS, cuts)) as split:
            first = bits(split)
            assert [bits(split) == first for _ in range(RUNS - 1)] == [True] * (RUNS - 1)
        settings = SETTINGS.get(reference, {})
        with closing(load_whole(reference, replace(config, **settings))) as whole:  # type: ignore[arg-type]
            expected = bits(whole)
    ours, theirs = (np.frombuffer(found, np.float32).reshape(-1, VOCABULARY) for found in (first, expected))
    assert np.abs(ours - theirs).max() < within
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1)).all()


@pytest.mark.parametrize("engines", [*permutations(GGUF_ENGINES, 2), ("llamacpp", "torch", "tinygrad")], ids=",".join)
def test_engines_that_read_a_gguf(engines: tuple[str, ...], cache: Path) -> None:
    check(gguf(cache, GgmlType.F32), engines, "llamacpp", 0.02, cache)


@pytest.mark.parametrize("engines", list(permutations(DIRECTORY_ENGINES, 2)), ids=",".join)
def test_engines_that_read_a_directory(engines: tuple[str, ...], cache: Path) -> None:
    path = cache / "llama"
    check(path if path.exists() else write_tiny_llama(path, LAYERS), engines, "torch", 1e-3, cache)


@pytest.mark.parametrize("engines", [("torch", "mlx"), ("mlx", "torch")], ids=",".join)
def test_recurrent_states_stay_together_over_a_long_text(engines: tuple[str, ...], tmp_path: Path) -> None:
    """A tiny Qwen3.5, 2,048 tokens in parts of 64: three gated DeltaNet layers to one of attention."""
    need(engines)
    torch = pytest.importorskip("torch")
    from engines.torch.tiny_models import LAYERS as DEEP
    from engines.torch.tiny_models import write_model

    path = write_model(tmp_path / "qwen3_5", "qwen3_5", torch.float32)
    config = EngineConfig(
        str(path),
        0,
        DEEP,
        True,
        True,
        context=2048,
        parallel=1,
        chunk=64,
        threads=1,
        boundary=Boundary(64, 1, RowDtype.F32),
    )
    with (
        closing(ring(config, engines, SETTINGS, [3])) as split,
        closing(whole_of(config, "torch", SETTINGS["torch"])) as whole,
    ):
        found = report(split, whole, prompt(2, 2048), 64, (64, 512, 1024, 2048))
    assert found.comparison.steps == 2048
    assert found.comparison.kl_max < 1e-5
    assert found.comparison.top1 > 0.999
    assert list(found.states) == [64, 512, 1024, 2048]
    assert all(len(apart) == 4 and max(apart) < 1e-4 for apart in found.states.values())
