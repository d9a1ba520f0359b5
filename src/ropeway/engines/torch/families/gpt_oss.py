"""GPT-OSS: mixture of experts, attention with sinks (its own, since torch's fused one has none), every other layer with
a window. Weights in MXFP4 are not read; dequantize them first.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.models.gpt_oss.modeling_gpt_oss import (
    GptOssDecoderLayer,
    GptOssRMSNorm,
    GptOssRotaryEmbedding,
    eager_attention_forward,
)

from ropeway.engines.torch.family import Family


def _norm(config: Any) -> nn.Module:
    return GptOssRMSNorm(config.hidden_size, eps=config.rms_norm_eps)


FAMILY = Family(
    layer=GptOssDecoderLayer,
    final=_norm,
    rotary=GptOssRotaryEmbedding,
    eager=eager_attention_forward,
    float32=("post_attention_layernorm", "input_layernorm", "norm"),
)
