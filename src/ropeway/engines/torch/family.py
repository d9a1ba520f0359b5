"""What the engine must know of a family of models: transformers' own modules for it, and how they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ropeway.engines.base import EngineError

Rotate = Callable[[nn.Module, Tensor, Tensor, str], tuple[Tensor, Tensor]]
"""The rotary module, rows [1, n, width] for their dtype, positions [1, n] and the layer's type: cosines and sines."""


def rotate(module: nn.Module, rows: Tensor, positions: Tensor, _layer_type: str) -> tuple[Tensor, Tensor]:
    """For families with one kind of rotary embedding."""
    cos, sin = module(rows, positions)
    return cos, sin


@dataclass(frozen=True, slots=True)
class Family:
    """One family. The modules are made from a configuration (and a layer's index).

    `final` is what stands between the last layer and the output matrix, in the checkpoint under `final_name`.
    `by_stream` are the parts of a layer that see one stream at a time (recurrent state, an index over all positions);
    the rest of a layer takes the rows of all streams together. `eager` is the family's own attention where torch's
    fused one does not suit. `float32` are the parts of names of weights that stay in f32. `planes` are the residual
    streams side by side, `embed_scale` is what embeddings are multiplied with, `tokens` says which layers read token
    ids.
    """

    layer: Callable[[Any, int], nn.Module]
    final: Callable[[Any], nn.Module]
    rotary: Callable[[Any], nn.Module]
    final_name: str = "norm"
    rotate: Rotate = rotate
    by_stream: tuple[str, ...] = ()
    eager: Callable[..., tuple[Tensor, Tensor | None]] | None = None
    float32: tuple[str, ...] = ()
    planes: Callable[[Any], int] = lambda _: 1
    embed_scale: Callable[[Any], float] | None = None
    tokens: Callable[[Any, int], bool] = lambda _config, _layer: False


def layer_type(config: Any, layer: int) -> str:
    """The kind of a layer, as the configuration names it."""
    types = getattr(config, "layer_types", None)
    return str(types[layer]) if types else "full_attention"


def window(config: Any, layer: int) -> int | None:
    """How many positions a layer's attention reaches back over, itself included; None: all."""
    size = getattr(config, "sliding_window", None)
    if size is None:
        return None
    if getattr(config, "layer_types", None):
        return int(size) if layer_type(config, layer) == "sliding_attention" else None
    return int(size) if getattr(config, "use_sliding_window", True) else None


def family_of(model_type: str) -> Family:
    """The family of a configuration's `model_type`. Raises EngineError, with those that there are."""
    match model_type:
        case "llama":
            from ropeway.engines.torch.families.llama import FAMILY
        case "mistral":
            from ropeway.engines.torch.families.mistral import FAMILY
        case "qwen2":
            from ropeway.engines.torch.families.qwen2 import FAMILY
        case "qwen3":
            from ropeway.engines.torch.families.qwen3 import FAMILY
        case "qwen3_moe":
            from ropeway.engines.torch.families.qwen3_moe import FAMILY
        case "qwen3_next":
            from ropeway.engines.torch.families.qwen3_next import FAMILY
        case "qwen3_5" | "qwen3_5_text":
            from ropeway.engines.torch.families.qwen3_5 import FAMILY
        case "qwen3_5_moe" | "qwen3_5_moe_text":
            from ropeway.engines.torch.families.qwen3_5_moe import FAMILY
        case "qwen4_exp" | "qwen4_exp_text":
            from ropeway.engines.torch.families.qwen4_exp import FAMILY
        case "gemma3" | "gemma3_text":
            from ropeway.engines.torch.families.gemma3 import FAMILY
        case "gpt_oss":
            from ropeway.engines.torch.families.gpt_oss import FAMILY
        case _:
            raise EngineError(f"the engine torch has no family {model_type!r}")
    return FAMILY
