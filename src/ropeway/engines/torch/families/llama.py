"""Llama 1 to 3, SmolLM, and what else calls itself so."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(layer=LlamaDecoderLayer, final=_norm, rotary=LlamaRotaryEmbedding)
