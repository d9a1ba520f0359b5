"""Qwen3-Next: gated DeltaNet and attention, 3 to 1, mixture of experts."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.qwen3_next.modeling_qwen3_next import (
    Qwen3NextDecoderLayer,
    Qwen3NextRMSNorm,
    Qwen3NextRotaryEmbedding,
)

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return Qwen3NextRMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(layer=Qwen3NextDecoderLayer, final=_norm, rotary=Qwen3NextRotaryEmbedding, by_stream=("linear_attn",))
