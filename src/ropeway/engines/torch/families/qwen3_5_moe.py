"""The text part of Qwen3.5, mixture of experts."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import (
    Qwen3_5MoeDecoderLayer,
    Qwen3_5MoeRMSNorm,
    Qwen3_5MoeTextRotaryEmbedding,
)

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return Qwen3_5MoeRMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(
    layer=Qwen3_5MoeDecoderLayer, final=_norm, rotary=Qwen3_5MoeTextRotaryEmbedding, by_stream=("linear_attn",)
)
