"""tinygrad's transformer block with what a stage needs besides: a cache of its caller's, and prompts by fixed blocks.

The matrices, norms and feed-forward part are the library's. Attention is written anew, because the library's compiles
once for every position of a prompt, ignores llama 3's rotary factors and keeps one cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tinygrad import Tensor, UOp, dtypes
from tinygrad.apps.llm import TransformerBlock, apply_rope

from ropeway.engines.tinygrad.weights import Facts


class Rotary:
    """Cosines and sines for `positions` positions, [positions, head_dim]; `factors` divide the frequencies."""

    def __init__(self, facts: Facts, positions: int, factors: Any, device: str) -> None:
        half = np.arange(0, facts.head_dim, 2, dtype=np.float64) / facts.head_dim
        frequencies = 1.0 / facts.rope_base**half
        if factors is not None:
            frequencies = frequencies / np.asarray(factors, np.float64)
        angles = np.arange(positions, dtype=np.float64)[:, None] * frequencies[None]
        table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
        self.table = Tensor(table, device=device).realize()


class Block(TransformerBlock):  # type: ignore[misc]
    """One layer. `max_context` positions fit into a cache."""

    def __init__(self, facts: Facts, positions: int, rotary: Rotary) -> None:
        super().__init__(
            facts.width,
            facts.feed_forward,
            facts.heads,
            facts.kv_heads,
            facts.epsilon,
            facts.head_dim,
            facts.rope_base,
            positions,
            facts.head_dim if facts.qk_norm else 0,
            facts.experts,
            facts.used,
        )
        self.rotary = rotary
        self.cache: Any = None
        """K and V of the stream at hand: [2, 1, kv_heads, positions, head_dim] f16."""

    def _attention(self, x: Any, start: UOp) -> Any:
        """Attention of rows at start..start+T, [1, T, width], over all positions up to each. Writes K and V."""
        normed = self.attn_norm(x)
        _, rows, _ = x.shape

        def heads(values: Any, count: int) -> Any:
            return values.reshape(1, rows, count, self.head_dim).transpose(1, 2)

        q = heads(self.attn_q(normed), self.n_heads)
        k = heads(self.attn_k(normed), self.n_kv_heads)
        v = heads(self.attn_v(normed), self.n_kv_heads)
        if self.qk_norm:
            q, k = self.attn_q_norm(q), self.attn_k_norm(k)
        angles = self.rotary.table[start : start + rows]
        q, k = apply_rope(q, angles), apply_rope(k, angles)
        new = Tensor.stack(k, v).cast(dtypes.half)
        self.cache[:, :, :, start : start + rows, :].assign(new).realize()
        held = self.cache[:, :, :, 0 : start + rows, :].float()
        mask = None
        if rows > 1:
            places = Tensor.arange(self.max_context, device=x.device)
            causal = places.reshape(-1, 1) >= places.reshape(1, -1)
            mask = causal[start : start + rows, 0 : start + rows].reshape(1, 1, rows, start + rows)
        done = q.scaled_dot_product_attention(held[0], held[1], attn_mask=mask, enable_gqa=True)
        return x + self.attn_output(done.transpose(1, 2).reshape(1, rows, -1))
