"""Matrices packed for the CPU's products: bf16 through mkldnn, which decodes 1.4 times as fast as plain `nn.Linear`.

A packed matrix is a copy in the product's own order; the mapped file behind the plain one is then read no more.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ropeway.engines.torch.four_bit import FourBit, FourBitLinear


class PackedLinear(nn.Module):
    """A linear layer over a packed bf16 matrix. `lone`: pad a lone row to two, for the bits that it has in a batch."""

    def __init__(self, linear: nn.Linear, *, lone: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self._bias = None if linear.bias is None else linear.bias.detach()
        self._lone = lone

    def forward(self, rows: Tensor) -> Tensor:
        """[..., in_features] to [..., out_features]."""
        if self._lone and rows.numel() == self.in_features:
            pair = rows.reshape(1, -1).repeat(2, 1)
            return self._product(pair)[:1].view(*rows.shape[:-1], self.out_features)
        return self._product(rows)

    def _product(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")
        return product


class PairedLinear(nn.Module):
    """A plain linear layer that pads a lone row to two."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._linear = linear
        self._width = linear.in_features

    def forward(self, rows: Tensor) -> Tensor:
        """[..., in_features] to [..., out_features]."""
        if rows.numel() == self._width:
            pair = rows.reshape(1, -1).repeat(2, 1)
            product: Tensor = self._linear(pair)[:1]
            return product.view(*rows.shape[:-1], -1)
        product = self._linear(rows)
        return product


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """bf16 on a CPU that multiplies it itself."""
    return (
        device.type == "cpu"
        and dtype is torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def keep_four(linear: nn.Linear, matrix: FourBit) -> None:
    """Let `replaced` use this matrix instead of the layer's weight, which is left without memory."""
    linear.four_bit = matrix


def kept_four(linear: nn.Linear) -> FourBit | None:
    """The 4-bit matrix that was kept for a layer."""
    matrix: FourBit | None = vars(linear).get("four_bit")
    return matrix


def replace_linears(module: nn.Module, *, pack: bool, invariant: bool) -> None:
    """Put packed (or paired) layers in the place of all `nn.Linear` below `module`."""
    if not pack and not invariant:
        return
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            module.register_module(name, replaced(child, pack=pack, invariant=invariant))
        else:
            replace_linears(child, pack=pack, invariant=invariant)


def replaced(linear: nn.Linear, *, pack: bool, invariant: bool) -> nn.Module:
    """One linear layer, packed or paired as asked for; over its matrix in 4 bits where that was kept (`keep_four`)."""
    four = kept_four(linear)
    if four is not None:
        return FourBitLinear(four, None if linear.bias is None else linear.bias.detach())
    if pack:
        return PackedLinear(linear, lone=invariant)
    return PairedLinear(linear) if invariant else linear
