"""Matrices that stay in 4 bits: torch's own product for the CPU reads a quarter of what bf16 would.

A value is (q - 8) * scale + zero, with a scale and a zero in bf16 for each group of a row's values. GGUF's Q4_0 and
Q4_1 (group 32) and MLX's affine 4 bits (group 64) are of that form but for the rounding of scale and zero to bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

GROUPS: Final = (32, 64, 128, 256)
"""Sizes of groups that the product knows."""
ROWS: Final = 16
"""A matrix must have a multiple of so many rows."""
_TILES = 1


@dataclass(frozen=True, slots=True)
class FourBit:
    """A matrix [out, in]: `values` 0..15 as uint8, `scales` and `zeros` [out, in / group], f32."""

    values: Tensor
    scales: Tensor
    zeros: Tensor

    @property
    def group(self) -> int:
        """Values that share a scale."""
        return int(self.values.shape[1] // self.scales.shape[1])

    @property
    def fits(self) -> bool:
        """torch has a product for it."""
        return self.group in GROUPS and self.values.shape[0] % ROWS == 0

    def dequantized(self) -> Tensor:
        """The matrix, f32."""
        wide = (self.values.float() - 8).view(*self.scales.shape, self.group)
        return (wide * self.scales[..., None] + self.zeros[..., None]).view(self.values.shape)

    def rows(self, order: Tensor) -> FourBit:
        """With its rows in another order."""
        return FourBit(self.values[order], self.scales[order], self.zeros[order])


def joined(parts: Sequence[FourBit]) -> FourBit:
    """Several matrices, one below the other."""
    return FourBit(
        torch.cat([part.values for part in parts]),
        torch.cat([part.scales for part in parts]),
        torch.cat([part.zeros for part in parts]),
    )


class FourBitLinear(nn.Module):
    """A linear layer over a 4-bit matrix; rows are bf16. The bits of a row do not depend on the rows beside it."""

    def __init__(self, matrix: FourBit, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = matrix.values.shape
        self._group = matrix.group
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(matrix.values.to(torch.int32), _TILES)
        both = torch.stack([matrix.scales, matrix.zeros], dim=-1).to(torch.bfloat16)
        self._scales = both.transpose(0, 1).contiguous()
        self._bias = bias

    def forward(self, rows: Tensor) -> Tensor:
        """[..., in_features] to [..., out_features]."""
        flat = rows.reshape(-1, self.in_features)
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(flat, self._packed, self._group, self._scales)
        if self._bias is not None:
            product = product + self._bias
        return product.view(*rows.shape[:-1], self.out_features)


def mlx_four_bit(words: Tensor, scales: Tensor, biases: Tensor) -> FourBit:
    """A matrix of MLX's affine 4 bits, value = q * scale + bias."""
    return FourBit(_unpacked(words, 4), scales, biases + 8 * scales)


def mlx_dequantized(words: Tensor, scales: Tensor, biases: Tensor, bits: int) -> Tensor:
    """A matrix of MLX's affine quantization made large, f32."""
    values = _unpacked(words, bits)
    wide = values.float().view(*scales.shape, -1)
    return (wide * scales[..., None] + biases[..., None]).view(values.shape)


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """MLX's packed values: int32 words [out, n], the first value in the lowest bits; uint8 [out, n * 32 / bits]."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    values = (words[..., None] >> shifts) & ((1 << bits) - 1)
    return values.to(torch.uint8).view(words.shape[0], -1)


def q4_blocks(raw: Tensor, rows: int, *, with_minimum: bool) -> FourBit:
    """GGUF's Q4_0 (d, 16 bytes) or Q4_1 (d, m, 16 bytes) blocks of 32 values, as bytes of `rows` rows."""
    head = 4 if with_minimum else 2
    blocks = raw.view(rows, -1, head + 16)
    scales = blocks[..., :2].contiguous().view(torch.float16)[..., 0].float()
    if with_minimum:
        zeros = blocks[..., 2:4].contiguous().view(torch.float16)[..., 0].float() + 8 * scales
    else:
        zeros = torch.zeros_like(scales)
    quants = blocks[..., head:]
    values = torch.cat([quants & 15, quants >> 4], dim=-1).reshape(rows, -1)
    return FourBit(values, scales, zeros)
