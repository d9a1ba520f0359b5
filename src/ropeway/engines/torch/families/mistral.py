"""Mistral, dense; its window counts for every layer."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer, MistralRMSNorm, MistralRotaryEmbedding

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return MistralRMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(layer=MistralDecoderLayer, final=_norm, rotary=MistralRotaryEmbedding)
