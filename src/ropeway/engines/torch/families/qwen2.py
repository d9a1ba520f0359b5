"""Qwen2 and Qwen2.5, dense."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm, Qwen2RotaryEmbedding

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return Qwen2RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(layer=Qwen2DecoderLayer, final=_norm, rotary=Qwen2RotaryEmbedding)
