"""Llama's decoder layer, as Mistral, Qwen2 and Qwen3 have it too, in one module: fewer calls a step than the library's.

Bit-equal to the library's layers (tests/engines/torch/test_compact.py). On packed matrices Q, K and V are one product,
and gate and up are one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropeway.engines.torch import four_bit
from ropeway.engines.torch.attention import Attention
from ropeway.engines.torch.batch import Batch
from ropeway.engines.torch.packing import keep_four, kept_four, replaced


class CompactLayer(nn.Module):
    """One layer over the weights of the library's own module `layer`, which must be filled; used instead of it."""

    def __init__(
        self, layer: nn.Module, config: Any, number: int, attention: Attention, *, pack: bool, invariant: bool
    ) -> None:
        super().__init__()
        attend: Any = layer.self_attn
        mlp: Any = layer.mlp
        self.layer_idx = number
        self.head_dim = int(attend.head_dim)
        self.num_key_value_groups = int(attend.num_key_value_groups)
        self.is_causal = True
        self._attention = attention
        self._scaling = float(attend.scaling)
        self._eps = float(config.rms_norm_eps)
        self._queries = int(config.num_attention_heads) * self.head_dim
        self._keys = int(config.num_key_value_heads) * self.head_dim
        self._before = _vector(layer.input_layernorm)
        self._between = _vector(layer.post_attention_layernorm)
        self._query_norm = _vector(attend.q_norm) if hasattr(attend, "q_norm") else None
        self._key_norm = _vector(attend.k_norm) if hasattr(attend, "k_norm") else None
        inner = [attend.q_proj, attend.k_proj, attend.v_proj]
        outer = [mlp.gate_proj, mlp.up_proj]
        if pack and _alike(inner) and _alike(outer):
            inner, outer = [_joined(inner)], [_joined(outer)]
        self._inner = nn.ModuleList(replaced(linear, pack=pack, invariant=invariant) for linear in inner)
        self._outer = nn.ModuleList(replaced(linear, pack=pack, invariant=invariant) for linear in outer)
        self._output = replaced(attend.o_proj, pack=pack, invariant=invariant)
        self._down = replaced(mlp.down_proj, pack=pack, invariant=invariant)

    def forward(
        self,
        rows: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        batch: Batch,
        **_: Any,
    ) -> Tensor:
        """Rows [1, n, width] in and out."""
        inside = _norm(rows, self._before, self._eps)
        if len(self._inner) == 1:
            query, key, value = self._inner[0](inside).split((self._queries, self._keys, self._keys), dim=-1)
        else:
            query, key, value = (linear(inside) for linear in self._inner)
        shape = (1, rows.shape[1], -1, self.head_dim)
        query, key = query.view(shape), key.view(shape)
        if self._query_norm is not None and self._key_norm is not None:
            query, key = _norm(query, self._query_norm, self._eps), _norm(key, self._key_norm, self._eps)
        cos, sin = position_embeddings[0][:, None], position_embeddings[1][:, None]
        query, key = _turned(query.transpose(1, 2), cos, sin), _turned(key.transpose(1, 2), cos, sin)
        value = value.view(shape).transpose(1, 2)
        attended, _none = self._attention(self, query, key, value, None, batch=batch, scaling=self._scaling)
        rows = rows + self._output(attended.reshape(1, rows.shape[1], -1))
        inside = _norm(rows, self._between, self._eps)
        if len(self._outer) == 1:
            gate, up = self._outer[0](inside).chunk(2, dim=-1)
        else:
            gate, up = (linear(inside) for linear in self._outer)
        return rows + self._down(functional.silu(gate) * up)


def is_compact(layer: nn.Module, config: Any) -> bool:
    """The layer is of the one form that this module has: dense, silu, norms before attention and before the MLP."""
    names = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
    if {name for name, _ in layer.named_children()} != names or config.hidden_act != "silu":
        return False
    inside = {name for name, _ in layer.self_attn.named_children()}
    mlp = {name for name, child in layer.mlp.named_children() if isinstance(child, nn.Linear)}
    dense = {"gate_proj", "up_proj", "down_proj"}
    projections = {"q_proj", "k_proj", "v_proj", "o_proj"}
    gated = layer.self_attn.q_proj.out_features != config.num_attention_heads * layer.self_attn.head_dim
    return mlp == dense and inside - {"q_norm", "k_norm"} == projections and not gated


def _vector(norm: nn.Module) -> Tensor:
    weight: Tensor = norm.weight.detach()
    return weight


def _norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Llama's RMS norm, in f32 up to the weight."""
    wide = rows.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(rows.dtype)


def _turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding, the two halves of a head turned against one another."""
    first, second = heads.chunk(2, dim=-1)
    return (heads * cos) + (torch.cat((-second, first), dim=-1) * sin)


def _alike(linears: list[nn.Linear]) -> bool:
    """All of them, or none, are kept in 4 bits, by groups of one size."""
    return len({None if (four := kept_four(linear)) is None else four.group for linear in linears}) == 1


def _joined(linears: list[nn.Linear]) -> nn.Linear:
    """Several products of the same rows as one."""
    with torch.device("meta"):
        joined = nn.Linear(linears[0].in_features, sum(linear.out_features for linear in linears), bias=False)
    four = [matrix for linear in linears if (matrix := kept_four(linear)) is not None]
    if len(four) == len(linears):
        keep_four(joined, four_bit.joined(four))
    else:
        weight = torch.cat([linear.weight for linear in linears])
        joined.weight = nn.Parameter(weight, requires_grad=False)
    if linears[0].bias is not None:
        joined.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]), requires_grad=False)
    return joined
