"""The text part of Gemma 3: five layers with a window to one without, a rotary embedding for each kind."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3DecoderLayer, Gemma3RMSNorm, Gemma3RotaryEmbedding

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return Gemma3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


def _rotate(module: nn.Module, rows: Tensor, positions: Tensor, layer_type: str) -> tuple[Tensor, Tensor]:
    cos, sin = module(rows, positions, layer_type)
    return cos, sin


def _embed_scale(config: Any) -> float:
    return float(config.hidden_size**0.5)


FAMILY = Family(
    layer=Gemma3DecoderLayer, final=_norm, rotary=Gemma3RotaryEmbedding, rotate=_rotate, embed_scale=_embed_scale
)
