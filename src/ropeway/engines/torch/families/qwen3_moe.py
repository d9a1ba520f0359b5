"""Qwen3, mixture of experts."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.qwen3_moe.modeling_qwen3_moe import (
    Qwen3MoeDecoderLayer,
    Qwen3MoeRMSNorm,
    Qwen3MoeRotaryEmbedding,
)

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return Qwen3MoeRMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(layer=Qwen3MoeDecoderLayer, final=_norm, rotary=Qwen3MoeRotaryEmbedding)
