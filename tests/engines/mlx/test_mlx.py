"""MLX on tiny models of every family: a split is the whole, rollbacks of recurrent layers, torch's logits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="the engine mlx needs mlx")
pytest.importorskip("mlx_lm", reason="the engine mlx needs mlx_lm")

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from engines.kits import Split
from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import NO_STATES, EngineConfig, EngineError, Span
from ropeway.engines.mlx.engine import MlxEngine, choose_device
from ropeway.engines.registry import load_whole
from ropeway.types import Backend, Boundary, RowDtype
from tiny_gguf import VOCABULARY
from tiny_llama import write_tiny_llama

FAMILIES = ["llama", "llama-tied", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "gpt_oss"]
RECURRENT = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "gpt_oss")
"""Whose states cannot be cut: recurrent ones, and windows."""
LAYERS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlx")


def model(folder: Path, family: str) -> Path:
    """A tiny model as transformers writes it, in f32."""
    path = folder / family
    if family == "gpt_oss":
        return path if path.exists() else gpt_oss(path)
    torch = pytest.importorskip("torch", reason="transformers writes these models with torch")
    pytest.importorskip("transformers", reason="transformers writes these models")
    from engines.torch.tiny_models import write_model

    if not path.exists():
        write_model(path, family, torch.float32)
        if family == "qwen3_5_moe":
            _fuse_experts(path / "model.safetensors")
    return path


def _fuse_experts(file: Path) -> None:
    """The experts' matrices of a layer in one tensor each, as Qwen's own checkpoints have them."""
    weights: Any = mx.load(str(file))
    names = sorted(name for name in weights if ".experts." in name)
    for at in sorted({name.split(".experts.")[0] for name in names}):
        experts = sorted({int(name.split(".experts.")[1].split(".")[0]) for name in names})
        parts = {
            kind: mx.stack([weights.pop(f"{at}.experts.{number}.{kind}.weight") for number in experts])
            for kind in ("gate_proj", "up_proj", "down_proj")
        }
        weights[f"{at}.experts.gate_up_proj"] = mx.concatenate([parts["gate_proj"], parts["up_proj"]], axis=1)
        weights[f"{at}.experts.down_proj"] = parts["down_proj"]
    mx.eval(weights)
    mx.save_safetensors(str(file), weights, {"format": "pt"})


def gpt_oss(path: Path) -> Path:
    """One that mlx-lm has made itself: transformers writes its experts under names that only 4-bit ones have there."""
    from mlx_lm.models.gpt_oss import Model, ModelArgs

    config = {
        "model_type": "gpt_oss", "num_hidden_layers": LAYERS, "num_local_experts": 4, "num_experts_per_tok": 2,
        "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 24, "rope_theta": 10000.0,
        "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"], "torch_dtype": "float32",
    }  # fmt: skip
    mx.random.seed(3)
    made = Model(ModelArgs.from_dict(config))
    weights = {name: mx.random.normal(array.shape) * 0.1 for name, array in tree_flatten(made.parameters())}
    path.mkdir()
    mx.save_safetensors(str(path / "model.safetensors"), weights)
    (path / "config.json").write_text(json.dumps(config))
    return path


def config_of(path: Path, dtype: RowDtype = RowDtype.F32) -> EngineConfig:
    return EngineConfig(
        str(path),
        0,
        LAYERS,
        True,
        True,
        context=256,
        parallel=3,
        chunk=128,
        device="cpu",
        boundary=Boundary(64, 1, dtype),
    )


def cut(config: EngineConfig, *cuts: int, chain: bool = False) -> Split:
    edges = (0, *cuts, config.end)
    last = len(edges) - 2
    stages = []
    for rank in range(last + 1):
        head = rank == (last if chain else 0)
        engine = MlxEngine(replace(config, first=edges[rank], end=edges[rank + 1], embed=rank == 0, head=head))
        engine.load()
        stages.append(engine)
    return Split(stages, chain=chain)


def prompt(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, VOCABULARY, count)]


BATCHES = [
    ([Span(0, 0, 40)], prompt(1, 40), [39]),
    ([Span(0, 40, 1), Span(2, 0, 30)], prompt(2, 31), [0, 30]),
    ([Span(0, 41, 1), Span(2, 30, 1)], prompt(3, 2), [0, 1]),
    ([Span(2, 31, 5)], prompt(4, 5), [0, 1, 2, 3, 4]),
]


@pytest.mark.parametrize("cuts", [(1,), (3,), (2, 4)], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_split_is_the_whole(folder: Path, family: str, cuts: tuple[int, ...]) -> None:
    config = config_of(model(folder, family))
    with closing(cut(config, *cuts)) as split, closing(load_whole("mlx", config)) as whole:
        for spans, tokens, wanted in BATCHES:
            ours, theirs = split.forward(spans, tokens, wanted), whole.forward(spans, tokens, wanted)
            assert ours.tobytes() == theirs.tobytes(), spans
            assert ours.std() > 0
        for both in (split, whole):
            both.keep(2, 33)
        for both in (split, whole):
            both.keep(0, 41)
        batch = ([Span(0, 41, 1), Span(2, 33, 2)], prompt(5, 3), [0, 2])
        assert split.forward(*batch).tobytes() == whole.forward(*batch).tobytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rollback_and_a_restored_state_are_as_if_nothing_had_been(folder: Path, family: str) -> None:
    with closing(cut(config_of(model(folder, family)), 2)) as split:
        assert [e.capacities.states != NO_STATES for e in split.stages] == [family in RECURRENT] * 2
        split.prompt(0, prompt(6, 50))
        states = [engine.save(0) for engine in split.stages]
        right = split.forward([Span(0, 50, 1)], [7], [0])
        split.forward([Span(0, 51, 3)], [8, 9, 10], [0, 1, 2])
        split.keep(0, 52)
        rolled = split.forward([Span(0, 52, 1)], [11], [0])
        for engine, state in zip(split.stages, states, strict=True):
            engine.restore(1, state)
        assert split.forward([Span(1, 50, 1)], [7], [0]).tobytes() == right.tobytes()
        split.forward([Span(1, 51, 1)], [8], [0])
        fresh = split.forward([Span(1, 52, 1)], [11], [0])
        assert np.abs(rolled - fresh).max() < 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_kept_prompt_is_resumed_at_its_last_multiple_of_64(folder: Path, family: str) -> None:
    """As the prompt cache does it: saved behind a reply, restored, cut, read on."""
    tokens = prompt(7, 100)
    with closing(cut(config_of(model(folder, family)), 2)) as split:
        split.forward([Span(0, 0, 64)], tokens[:64], [63])
        split.forward([Span(0, 64, 36)], tokens[64:], [35])
        split.forward([Span(0, 100, 1)], [9], [0])
        states = [engine.save(0) for engine in split.stages]
        for engine, state in zip(split.stages, states, strict=True):
            engine.restore(1, state)
        split.keep(1, 64)
        resumed = split.forward([Span(1, 64, 36)], tokens[64:], [35])
        split.release(0)
        split.forward([Span(0, 0, 64)], tokens[:64], [63])
        assert resumed.tobytes() == split.forward([Span(0, 64, 36)], tokens[64:], [35]).tobytes()
        if family in RECURRENT:
            with pytest.raises(EngineError, match="cannot go back to position 30"):
                split.keep(1, 30)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gpt_oss"])
def test_it_computes_what_torch_computes(folder: Path, family: str) -> None:
    path = model(folder, family)
    config = replace(config_of(path), threads=1)
    with (
        closing(load_whole("mlx", config)) as ours,
        closing(load_whole("torch", replace(config, dtype="f32"))) as theirs,
    ):
        for spans, tokens, wanted in BATCHES[:3]:
            a, b = ours.forward(spans, tokens, wanted), theirs.forward(spans, tokens, wanted)
            assert np.abs(a - b).max() < 2e-3, spans
            assert (a.argmax(axis=1) == b.argmax(axis=1)).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantized_checkpoint_of_mlx(tmp_path: Path, bits: int) -> None:
    path = quantized(write_tiny_llama(tmp_path / "plain", LAYERS), tmp_path / "quantized", bits)
    config = config_of(path)
    with closing(cut(config, 2)) as split, closing(load_whole("mlx", config)) as whole:
        for spans, tokens, wanted in BATCHES:
            assert split.forward(spans, tokens, wanted).tobytes() == whole.forward(spans, tokens, wanted).tobytes()
        held = sum(engine.weights_bytes for engine in split.stages)
        size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
        assert 0.9 * size < held < 1.1 * size


def quantized(source: Path, target: Path, bits: int) -> Path:
    """As mlx-lm's converter writes it."""
    from mlx_lm.utils import load_model

    loaded, config = load_model(source)
    nn.quantize(loaded, group_size=32, bits=bits)
    target.mkdir()
    mx.save_safetensors(str(target / "model.safetensors"), dict(tree_flatten(loaded.parameters())))
    (target / "config.json").write_text(json.dumps({**config, "quantization": {"group_size": 32, "bits": bits}}))
    return target


@pytest.mark.parametrize("dtype", list(RowDtype))
def test_rows_in_the_layouts_dtype(tmp_path: Path, dtype: RowDtype) -> None:
    """The model computes in f32; what crosses is rounded to the layout's dtype and no more."""
    config = config_of(write_tiny_llama(tmp_path / "m", LAYERS), dtype)
    exact = config_of(tmp_path / "m")
    with closing(cut(config, 2)) as split, closing(load_whole("mlx", exact)) as whole:
        assert {engine.boundary.row_dtype for engine in split.stages} == {dtype}
        ours, theirs = (both.forward(*BATCHES[0]) for both in (split, whole))
        difference = np.abs(ours - theirs).max()
        assert difference == 0 if dtype is RowDtype.F32 else 0 < difference < 0.1


def test_a_dtype_of_its_own(tmp_path: Path) -> None:
    config = replace(config_of(write_tiny_llama(tmp_path / "m", LAYERS), RowDtype.BF16), dtype="bf16")
    with closing(cut(config, 2)) as split:
        assert split.stages[0].weights_bytes * 1.9 < (tmp_path / "m" / "model.safetensors").stat().st_size
        assert np.isfinite(split.forward(*BATCHES[0])).all()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[MlxEngine]:
    made = MlxEngine(config_of(write_tiny_llama(tmp_path / "m", LAYERS)))
    with closing(made):
        yield made


def test_a_state_of_another_shape_is_refused(engine: MlxEngine) -> None:
    engine.load()
    rows = memoryview(bytearray(256))
    engine.forward([Span(0, 0, 1)], rows, memoryview(bytearray(256)))
    state = engine.save(0)
    for wrong in (b"", b"MLX1", state[:-1], b"XXXX" + state[4:], state[:12] + b"}" + state[13:]):
        with pytest.raises(EngineError, match="refused the saved state"):
            engine.restore(1, wrong)
        engine.release(1)


def test_what_it_does_not_know_is_refused_by_name(engine: MlxEngine, tmp_path: Path) -> None:
    path = Path(engine._config.model)
    value = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**value, "model_type": "gemma3_text"}))
    other = MlxEngine(config_of(path))
    with pytest.raises(CheckpointError, match=r"knows gpt_oss, llama, .*, not gemma3_text"):
        other.load()
    with pytest.raises(EngineError, match="computes in f32, bf16 or f16, not q4"):
        MlxEngine(replace(config_of(path), dtype="q4"))
    with pytest.raises(EngineError, match="on cpu or gpu, not cuda:1"):
        choose_device("cuda:1")
    assert choose_device("cpu") is Backend.CPU
