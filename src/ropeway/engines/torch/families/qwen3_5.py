"""The text part of Qwen3.5 and Qwen3.8: gated DeltaNet and attention, 3 to 1. Residual already added: one plane."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm, Qwen3_5TextRotaryEmbedding

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return Qwen3_5RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(layer=Qwen3_5DecoderLayer, final=_norm, rotary=Qwen3_5TextRotaryEmbedding, by_stream=("linear_attn",))
