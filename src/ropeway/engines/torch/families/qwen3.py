"""Qwen3, dense."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm, Qwen3RotaryEmbedding

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(layer=Qwen3DecoderLayer, final=_norm, rotary=Qwen3RotaryEmbedding)
