"""Safetensors files and checkpoint directories for tests, written with nothing but numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Tensors = Mapping[str, npt.NDArray[Any]]

_DTYPES = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64", "uint8": "U8", "uint16": "BF16"}
"""By numpy's name; bf16, which numpy lacks, as its 16 bits."""


def encode(tensors: Tensors) -> bytes:
    """A safetensors file's bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": _DTYPES[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [at, at + values.nbytes],
        }
        at += values.nbytes
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(values.tobytes() for values in tensors.values())


def llama_tensors(layers: int = 3, width: int = 8, vocabulary: int = 32) -> dict[str, npt.NDArray[Any]]:
    """The weights of a tiny llama, or as many of them as headers need: embeddings, a matrix a layer, the norm."""
    random = np.random.default_rng(0)
    tensors = {"model.embed_tokens.weight": random.standard_normal((vocabulary, width), np.float32)}
    for layer in range(layers):
        tensors[f"model.layers.{layer}.mlp.up_proj.weight"] = random.standard_normal((2 * width, width), np.float32)
    return tensors | {"model.norm.weight": np.ones(width, np.float32)}


LLAMA = {
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 32,
}


def write_directory(path: Path, config: Mapping[str, object], *files: Tensors) -> Path:
    """A checkpoint directory: one file, or several with an index."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if len(files) == 1:
        (path / "model.safetensors").write_bytes(encode(files[0]))
        return path
    names = [f"model-{number + 1:05d}-of-{len(files):05d}.safetensors" for number in range(len(files))]
    for name, tensors in zip(names, files, strict=True):
        (path / name).write_bytes(encode(tensors))
    weight_map = {tensor: name for name, tensors in zip(names, files, strict=True) for tensor in tensors}
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return path
