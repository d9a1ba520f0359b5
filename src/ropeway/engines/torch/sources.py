"""Weights by the names that transformers' modules have for them, wherever they lie, read as they are asked for.

Names are those inside the text model: `layers.3.mlp.up_proj.weight`, `embed_tokens.weight`, `norm.weight`, and
`lm_head.weight`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from ropeway.checkpoints.checkpoint import Format, format_of
from ropeway.checkpoints.directory import DirectoryCheckpoint
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.safetensors_file import Dtype

HEAD = "lm_head.weight"
EMBEDDINGS = "embed_tokens.weight"
OUTSIDE = "mtp."
"""Where a model's next-token head lies, outside the text model (mtp.py)."""

_TORCH: Final = {
    Dtype.F64: torch.float64,
    Dtype.F32: torch.float32,
    Dtype.F16: torch.float16,
    Dtype.BF16: torch.bfloat16,
    Dtype.I64: torch.int64,
    Dtype.I32: torch.int32,
    Dtype.I16: torch.int16,
    Dtype.I8: torch.int8,
    Dtype.U8: torch.uint8,
    Dtype.BOOL: torch.bool,
}
_PREFIXES: Final = ("model.language_model.", "model.", "language_model.model.", "")
_EXPERTS: Final = {
    "mlp.experts.gate_up_proj": ("gate_proj", "up_proj"),
    "mlp.experts.down_proj": ("down_proj",),
}
"""Matrices of all experts in one, and the matrices of single experts that checkpoints have instead, which follow one
another along the rows (transformers' conversion_mapping.py, qwen2_moe)."""


class Source(Protocol):
    """A checkpoint's weights."""

    @property
    def config(self) -> Any:
        """The configuration of the text model, as transformers has it."""
        ...

    @property
    def tied(self) -> bool:
        """The output matrix is the embedding matrix."""
        ...

    def tensor(self, name: str, shape: torch.Size) -> Tensor:
        """A weight, of that shape. Raises CheckpointError, with its name, where it is missing or of another shape."""
        ...

    def has(self, name: str) -> bool:
        """There is such a weight."""
        ...

    def shards(self, name: str) -> list[Tensor]:
        """The pieces, row after row, that a large table lies in; empty where it lies in one piece."""
        ...

    def layer_bytes(self, layer: int) -> int:
        """Bytes in the checkpoint of a layer's weights."""
        ...

    def weight_bytes(self, name: str) -> int:
        """Bytes in the checkpoint of one weight."""
        ...


class DirectorySource:
    """A directory with safetensors: weights are views of the mapped file."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoConfig

        self._checkpoint = checkpoint = DirectoryCheckpoint(path)
        if quantized := checkpoint.config.get("quantization_config") or checkpoint.config.get("quantization"):
            method = quantized.get("quant_method", "MLX's") if isinstance(quantized, dict) else quantized
            raise CheckpointError(
                f"{path}: weights quantized by {method} cannot be read; use an unquantized checkpoint"
            )
        try:
            self.config = AutoConfig.from_pretrained(path, local_files_only=True).get_text_config()
        except Exception as error:
            raise CheckpointError(f"{path}: transformers cannot read its configuration: {error}") from error
        embeddings = checkpoint.embeddings
        self._prefix = next(prefix for prefix in _PREFIXES if embeddings == prefix + EMBEDDINGS)
        self.tied = bool(self.config.tie_word_embeddings) or HEAD not in checkpoint.tensors

    def tensor(self, name: str, shape: torch.Size) -> Tensor:
        """As `Source`."""
        full = self._full(name)
        if full not in self._checkpoint.tensors and (experts := self._experts(full, shape)) is not None:
            return experts
        found = self._mapped(full)
        if found.shape != shape:
            raise CheckpointError(
                f"{self._checkpoint.path}: tensor {full} has the shape {list(found.shape)}, "
                f"the configuration needs {list(shape)}"
            )
        return found

    def has(self, name: str) -> bool:
        """As `Source`."""
        return self._full(name) in self._checkpoint.tensors

    def shards(self, name: str) -> list[Tensor]:
        """As `Source`: `NAME.shard_0.weight` and so on in place of `NAME.weight`."""
        stem = self._full(name).removesuffix(".weight")
        found: list[Tensor] = []
        while (shard := f"{stem}.shard_{len(found)}.weight") in self._checkpoint.tensors:
            found.append(self._mapped(shard))
        return found

    def layer_bytes(self, layer: int) -> int:
        """As `Source`."""
        prefix = f"{self._prefix}layers.{layer}."
        return sum(entry.nbytes for entry in self._checkpoint.tensors.values() if entry.name.startswith(prefix))

    def weight_bytes(self, name: str) -> int:
        """As `Source`."""
        return self._checkpoint.entry(self._full(name)).nbytes

    @property
    def touched_bytes(self) -> int:
        """Bytes of the weights that were asked for so far."""
        return self._checkpoint.touched_bytes

    def _full(self, name: str) -> str:
        return name if name == HEAD or name.startswith(OUTSIDE) else self._prefix + name

    def _mapped(self, full: str) -> Tensor:
        entry = self._checkpoint.entry(full)
        dtype = _TORCH.get(entry.dtype)
        if dtype is None:
            raise CheckpointError(
                f"{self._checkpoint.path}: tensor {full} is {entry.dtype.label}, which cannot be read"
            )
        data = self._checkpoint.tensor_bytes(full)
        if not entry.nbytes:
            return torch.empty(entry.shape, dtype=dtype)
        return torch.frombuffer(data, dtype=dtype).view(entry.shape)

    def _experts(self, full: str, shape: torch.Size) -> Tensor | None:
        """All experts' matrices in one, copied together."""
        for fused, parts in _EXPERTS.items():
            if full.endswith(fused):
                stem = full.removesuffix(fused) + "mlp.experts."
                if f"{stem}0.{parts[0]}.weight" not in self._checkpoint.tensors:
                    return None
                rows = shape[1] // len(parts)
                return torch.stack(
                    [torch.cat(list(self._expert(f"{stem}{i}", parts, rows, shape[2]))) for i in range(shape[0])]
                )
        return None

    def _expert(self, stem: str, parts: tuple[str, ...], rows: int, columns: int) -> Iterator[Tensor]:
        for part in parts:
            matrix = self._mapped(f"{stem}.{part}.weight")
            if matrix.shape != (rows, columns):
                raise CheckpointError(
                    f"{self._checkpoint.path}: tensor {stem}.{part}.weight has the shape {list(matrix.shape)}, "
                    f"the configuration needs {[rows, columns]}"
                )
            yield matrix


def open_source(path: Path) -> Source:
    """The weights of the checkpoint at `path`. Raises CheckpointError."""
    if format_of(path) is Format.SAFETENSORS:
        return DirectorySource(path)
    from ropeway.engines.torch.gguf_source import GgufSource

    return GgufSource(path)
