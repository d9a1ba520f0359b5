"""What the torch engine refuses, by name: layouts that do not fit; weights missing, of another shape, or cut off."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch

from engines.torch.stages import Stages, config_of
from engines.torch.tiny_models import LAYERS, write_model
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.safetensors_file import SafetensorsFile
from ropeway.engines.base import EngineError, Span
from ropeway.engines.torch.engine import TorchEngine
from ropeway.types import Boundary, RowDtype
from tiny_safetensors import Tensors, encode

GONE = "model.layers.3.mlp.up_proj.weight"


def changed(path: Path, change: Callable[[dict[str, np.ndarray]], Tensors]) -> None:
    """Write a model's file again with other tensors."""
    file = path / "model.safetensors"
    held = SafetensorsFile.open(file)
    tensors = {
        name: np.frombuffer(bytes(held.tensor_bytes(name)), np.float32).reshape(entry.shape)
        for name, entry in held.tensors.items()
    }
    file.write_bytes(encode(change(tensors)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "llama", torch.float32)


def loaded(path: Path) -> None:
    Stages(config_of(path, LAYERS), (2,))


def test_a_missing_tensor(path: Path) -> None:
    changed(path, lambda tensors: {name: values for name, values in tensors.items() if name != GONE})
    with pytest.raises(CheckpointError, match=f"there is no tensor {GONE}"):
        loaded(path)


def test_a_tensor_of_another_shape(path: Path) -> None:
    changed(path, lambda tensors: {**tensors, GONE: tensors[GONE][:-1]})
    with pytest.raises(
        CheckpointError, match=rf"tensor {GONE} has the shape \[95, 64\], the configuration needs \[96, 64\]"
    ):
        loaded(path)


def test_a_file_that_is_cut_off(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: the file is cut off: tensor .* ends at byte"):
        loaded(path)


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"model_type": "abacus"}, CheckpointError, "transformers cannot read its configuration"),
        ({"model_type": "bloom"}, EngineError, "the engine torch has no family 'bloom'"),
        ({"quantization_config": {"quant_method": "gptq"}}, CheckpointError, "weights quantized by gptq cannot"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, EngineError,
         "RoPE of the kind dynamic cannot be run with several streams"),
    ],
)  # fmt: skip
def test_configurations(path: Path, change: dict[str, object], error: type[Exception], why: str) -> None:
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(error, match=why):
        loaded(path)


def test_layouts(path: Path) -> None:
    config = config_of(path, LAYERS)
    with pytest.raises(EngineError, match="the layout sends 2 planes of 64 values, this model has 1 of 64"):
        TorchEngine(replace(config, boundary=Boundary(64, 2, RowDtype.F32)))
    with pytest.raises(EngineError, match="the layout sends 1 planes of 32 values"):
        TorchEngine(replace(config, boundary=Boundary(32, 1, RowDtype.F32)))
    with pytest.raises(EngineError, match=r"layers 3\.\.9 are not in this model of 5"):
        TorchEngine(replace(config, first=3, end=9))
    with pytest.raises(EngineError, match="dtype: 'int3' is none of f32, f16, bf16"):
        TorchEngine(replace(config, dtype="int3"))
    with pytest.raises(EngineError, match="device: 'abacus' is none that torch knows"):
        TorchEngine(replace(config, device="abacus"))


def test_what_is_not_known_to_be_invariant(path: Path) -> None:
    config = config_of(path, LAYERS, invariant=True)
    with pytest.raises(EngineError, match="invariant: products in f32 depend on how many rows are multiplied"):
        TorchEngine(config)
    with pytest.raises(EngineError, match="invariant: it is known of the CPU alone, not of meta"):
        TorchEngine(replace(config, dtype="bf16", device="meta"))
    TorchEngine(replace(config, dtype="bf16"))


def test_rows_of_another_dtype_are_converted_at_the_edge(path: Path) -> None:
    """bf16 layers over an f32 boundary: the same bits as over their own, since bf16 fits into f32."""
    config = config_of(path, LAYERS, dtype="bf16")
    own = Stages(config, (2,))
    wide = Stages(replace(config, boundary=Boundary(64, 1, RowDtype.F32)), (2,))
    assert own.engines[0].boundary.row_dtype is RowDtype.BF16
    found = [stages.forward([Span(0, 0, 7)], [5, 6, 7, 8, 9, 10, 11], range(7)) for stages in (own, wide)]
    assert found[0].tobytes() == found[1].tobytes()


def test_positions_and_roles(path: Path) -> None:
    first, last = Stages(config_of(path, LAYERS), (2,)).engines
    rows = memoryview(bytearray(first.boundary.row_bytes()))
    with pytest.raises(EngineError, match="slot 0 stands at position 0, not at 3"):
        first.forward([Span(0, 3, 1)], rows, rows)
    with pytest.raises(EngineError, match="without the embeddings"):
        last.embed([1], rows)
    with pytest.raises(EngineError, match="without a head"):
        last.head([Span(0, 0, 1)], rows, [0])
    with pytest.raises(ValueError, match="outside the vocabulary of 320"):
        first.embed([320], rows)
    with pytest.raises(EngineError, match="a saved state"):
        first.restore(0, b"\1\2\3")


def test_rollbacks_further_back_than_states_are_kept(tmp_path: Path) -> None:
    engine = Stages(config_of(write_model(tmp_path, "qwen3_5", torch.float32), LAYERS), (), chain=True).engines[0]
    size = engine.boundary.row_bytes()
    for first in (0, 64, 128, 192):
        rows = memoryview(bytearray(64 * size))
        engine.forward([Span(0, first, 64)], rows, rows)
    with pytest.raises(
        EngineError, match="a rollback to position 50 reaches further back than recurrent states are kept"
    ):
        engine.keep(0, 50)


def test_layers_that_read_tokens_must_be_given_some(tmp_path: Path) -> None:
    engine = Stages(config_of(write_model(tmp_path, "qwen4_exp", torch.float32), LAYERS), (), chain=True).engines[0]
    rows = memoryview(bytearray(2 * engine.boundary.row_bytes()))
    engine.take_tokens([1])
    with pytest.raises(EngineError, match="layers of this stage read token ids; 1 came for 2 rows"):
        engine.forward([Span(0, 0, 2)], rows, rows)
