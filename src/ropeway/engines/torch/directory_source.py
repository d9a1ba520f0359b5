"""Weights of a directory with safetensors: views of the mapped files; and of MLX's quantized matrices (affine)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from ropeway.checkpoints.directory import DirectoryCheckpoint
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.safetensors_file import Dtype
from ropeway.engines.torch.four_bit import FourBit, mlx_dequantized, mlx_four_bit
from ropeway.engines.torch.sources import EMBEDDINGS, HEAD, OUTSIDE

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


class DirectorySource:
    """A directory with safetensors: weights are views of the mapped file."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoConfig

        self._checkpoint = checkpoint = DirectoryCheckpoint(path)
        quantized = checkpoint.config.get("quantization_config")
        if isinstance(quantized, dict) and (method := quantized.get("quant_method")):
            raise CheckpointError(
                f"{path}: weights quantized by {method} cannot be read; take an unquantized checkpoint"
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

    def in_four_bits(self, name: str) -> bool:
        """As `Source`: MLX's."""
        full = self._full(name)
        return full in self._checkpoint.tensors and self._quantized(full) and self._quantization(full)[0] == 4

    def four_bit(self, name: str) -> FourBit:
        """As `Source`."""
        return mlx_four_bit(*self._quantized_parts(self._full(name)))

    def shards(self, name: str) -> list[Tensor]:
        """As `Source`: `NAME.shard_0.weight` and so on in place of `NAME.weight`."""
        stem = self._full(name).removesuffix(".weight")
        found: list[Tensor] = []
        while (shard := f"{stem}.shard_{len(found)}.weight") in self._checkpoint.tensors:
            found.append(self._mapped(shard))
        return found

    def bytes_under(self, prefix: str) -> int:
        """As `Source`."""
        full = self._full(prefix)
        return sum(entry.nbytes for entry in self._checkpoint.tensors.values() if entry.name.startswith(full))

    @property
    def touched_bytes(self) -> int:
        """Bytes of the weights that were asked for so far."""
        return self._checkpoint.touched_bytes

    def _full(self, name: str) -> str:
        return name if HEAD.startswith(name) or name.startswith(OUTSIDE) else self._prefix + name

    def _mapped(self, full: str) -> Tensor:
        entry = self._checkpoint.entry(full)
        if self._quantized(full):
            return mlx_dequantized(*self._quantized_parts(full), self._quantization(full)[0])
        dtype = _TORCH.get(entry.dtype)
        if dtype is None:
            raise CheckpointError(
                f"{self._checkpoint.path}: tensor {full} is {entry.dtype.label}, which cannot be read"
            )
        data = self._checkpoint.tensor_bytes(full)
        if not entry.nbytes:
            return torch.empty(entry.shape, dtype=dtype)
        return torch.frombuffer(data, dtype=dtype).view(entry.shape)

    def _quantized(self, full: str) -> bool:
        return (
            "quantization" in self._checkpoint.config
            and full.removesuffix("weight") + "scales" in self._checkpoint.tensors
        )

    def _quantization(self, full: str) -> tuple[int, int]:
        """MLX's bits a value and values a group for one weight, which may have its own."""
        settings = self._checkpoint.config["quantization"]
        own = settings.get(full.removesuffix(".weight")) if isinstance(settings, dict) else settings
        chosen = own if isinstance(own, dict) else settings
        if isinstance(chosen, dict) and chosen.get("mode", "affine") == "affine":
            bits, group = chosen.get("bits"), chosen.get("group_size")
            if bits in (4, 8) and type(group) is int and group > 0:
                return bits, group
        raise CheckpointError(f"{self._checkpoint.path}: quantization {chosen} cannot be read; affine 4 and 8 bits can")

    def _quantized_parts(self, full: str) -> tuple[Tensor, Tensor, Tensor]:
        """Packed words [out, n], and scales and biases [out, groups], f32."""
        bits, group = self._quantization(full)
        entry = self._checkpoint.entry(full)
        if entry.dtype is not Dtype.U32 or len(entry.shape) != 2:
            raise CheckpointError(f"{self._checkpoint.path}: tensor {full} is no matrix of packed words")
        words = torch.frombuffer(self._checkpoint.tensor_bytes(full), dtype=torch.int32).view(entry.shape)
        shape = (entry.shape[0], entry.shape[1] * 32 // bits // group)
        stem = full.removesuffix("weight")
        scales, biases = self._mapped(stem + "scales"), self._mapped(stem + "biases")
        for name, found in (("scales", scales), ("biases", biases)):
            if found.shape != shape:
                raise CheckpointError(
                    f"{self._checkpoint.path}: tensor {stem}{name} has the shape {list(found.shape)}, "
                    f"its matrix needs {list(shape)}"
                )
        return words, scales.float(), biases.float()

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
