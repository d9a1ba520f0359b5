"""MLX's affine checkpoints in the torch engine: kept in 4 bits where torch has a product, made large else, and said."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch
from safetensors.numpy import load_file, save_file

from engines.torch.stages import Stages, config_of, prompt
from engines.torch.tiny_models import LAYERS, write_model
from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import EngineConfig, Logits, Span
from ropeway.engines.torch.packing import can_pack
from ropeway.verify.compare import kl

GROUP = 64
MATRICES = LAYERS * 6 + 1
"""Those of the layers and the output; not `down_proj`, whose rows of 96 are no whole number of groups."""


def packed(
    values: npt.NDArray[np.float32], bits: int
) -> tuple[dict[str, npt.NDArray[np.generic]], npt.NDArray[np.float32]]:
    """A matrix as MLX lays it down, by the names behind the matrix's own, and what it stands for."""
    rows, columns = values.shape
    groups = values.reshape(rows, -1, GROUP)
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    scales = np.maximum(high - low, 1e-6) / ((1 << bits) - 1)
    quants = np.rint((groups - low) / scales).astype(np.uint32)
    per = 32 // bits
    words = (quants.reshape(rows, -1, per) << (np.arange(per, dtype=np.uint32) * bits)).sum(-1, dtype=np.uint32)
    meant = (quants.astype(np.float32) * scales + low).reshape(rows, columns)
    return {"weight": words, "scales": scales[..., 0], "biases": low[..., 0]}, meant


def write_both(folder: Path, bits: int) -> tuple[Path, Path]:
    """A quantized directory, and a plain one with the same values."""
    plain, small = (write_model(folder / name, "llama", torch.float32) for name in ("plain", "small"))
    tensors = load_file(plain / "model.safetensors")
    large, less = dict(tensors), dict(tensors)
    for name, values in tensors.items():
        stem = name.removesuffix("weight")
        if values.ndim == 2 and values.shape[1] % GROUP == 0:
            parts, large[name] = packed(values, bits)
            less |= {stem + part: value for part, value in parts.items()}
    save_file(large, plain / "model.safetensors")
    save_file(less, small / "model.safetensors")
    config = json.loads((small / "config.json").read_text())
    config["quantization"] = {"group_size": GROUP, "bits": bits}
    (small / "config.json").write_text(json.dumps(config))
    return small, plain


def logits_of(config: EngineConfig, cuts: tuple[int, ...] = ()) -> Logits:
    stages = Stages(config, cuts, chain=not cuts)
    tokens = prompt(1, 42)
    found = [stages.forward([Span(0, 0, 40)], tokens[:40], range(40))]
    found += [stages.forward([Span(0, 40 + at, 1)], [tokens[40 + at]], [0]) for at in range(2)]
    return np.concatenate(found)


@pytest.mark.parametrize("bits", [4, 8])
def test_made_large(tmp_path: Path, bits: int, caplog: pytest.LogCaptureFixture) -> None:
    small, plain = (config_of(path, LAYERS, dtype="f32") for path in write_both(tmp_path, bits))
    whole = logits_of(small)
    assert whole.tobytes() == logits_of(small, (2,)).tobytes()
    # A lone row's f32 product depends on how its matrix lies in memory, and one lies in a mapped file.
    assert np.abs(logits_of(plain) - whole).max() < 1e-5
    said = [line for line in caplog.messages if "made large" in line]
    if bits == 4:
        assert said[0] == (
            f"layers 0..5: {MATRICES} matrices in 4 bits are made large, to f32: "
            "torch has no 4-bit product for them in f32 on cpu"
        )
    else:
        assert not said


@pytest.mark.skipif(not can_pack(torch.device("cpu"), torch.bfloat16), reason="this processor does not multiply bf16")
def test_kept_in_four_bits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ropeway.torch")
    small, plain = (config_of(path, LAYERS, dtype="bf16") for path in write_both(tmp_path, 4))
    whole = logits_of(small)
    assert f"layers 0..5: {MATRICES} matrices stay in 4 bits" in caplog.messages
    assert logits_of(small, (2, 3)).tobytes() == whole.tobytes()
    assert max(kl(a, b) for a, b in zip(logits_of(plain), whole, strict=True)) < 2e-3


def test_a_quantization_that_cannot_be_read(tmp_path: Path) -> None:
    path, _plain = write_both(tmp_path, 4)
    file = path / "config.json"
    config = json.loads(file.read_text())
    for wrong in ({"bits": 3, "group_size": GROUP}, {"bits": 4, "group_size": GROUP, "mode": "mxfp4"}):
        file.write_text(json.dumps({**config, "quantization": wrong}))
        with pytest.raises(CheckpointError, match="cannot be read; affine 4 and 8 bits can"):
            logits_of(replace(config_of(path, LAYERS), dtype="f32"))
