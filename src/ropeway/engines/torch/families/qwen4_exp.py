"""Qwen4-Exp (Flash-Next), the text part: four residual streams side by side, which are the boundary's planes; gated
DeltaNet and indexed attention, 3 to 1; mixture of experts; some layers read token ids (n-gram embeddings).

A layer's n-gram hash depends on its place among all such layers, so layers keep their numbers of the whole model.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.qwen4_exp.modeling_qwen4_exp import (
    Qwen4ExpTextDecoderLayer,
    Qwen4ExpTextGatedResidual,
    Qwen4ExpTextRotaryEmbedding,
)

from ropeway.engines.torch.family import Family


def _mixer(config: Any) -> nn.Module:
    return Qwen4ExpTextGatedResidual(config, use_combine=False)


FAMILY = Family(
    layer=Qwen4ExpTextDecoderLayer,
    final=_mixer,
    rotary=Qwen4ExpTextRotaryEmbedding,
    final_name="hyper_connection_mixer",
    by_stream=("linear_attn", "self_attn", "ple"),
    planes=lambda config: int(config.hc_count),
    tokens=lambda config, layer: layer + 1 in config.ple_layer_ids,
)
