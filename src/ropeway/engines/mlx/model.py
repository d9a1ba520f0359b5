"""mlx-lm's model classes cut to a range of layers: which families, and what each needs to run some of its layers.

A model's own forward runs the layers that are left: its embedding becomes the identity (rows go in), and so does its
norm (rows come out). What is dropped was never read from disk, since mlx-lm loads lazily.
"""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from ropeway.checkpoints.directory import DirectoryCheckpoint
from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import EngineError

FAMILIES: Final = frozenset(
    {"llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text",
     "qwen3_5_moe_text", "gpt_oss"}
)  # fmt: skip
"""Families whose forward is embedding, layers, norm, with nothing applied to the embedding in between."""


class RangeModel:
    """Layers first..end of a directory's model; the embeddings and the head where asked.

    `hidden` values a row. Raises CheckpointError or EngineError.
    """

    def __init__(
        self, checkpoint: DirectoryCheckpoint, first: int, end: int, *, embed: bool, head: bool, dtype: Any
    ) -> None:
        family = checkpoint.model_type
        if family not in FAMILIES:
            raise CheckpointError(
                f"{checkpoint.path}: the engine mlx knows {', '.join(sorted(FAMILIES))}, not {family}"
            )
        self._model = _load(checkpoint)
        text = self._model.language_model if hasattr(self._model, "language_model") else self._model
        inner = text.model
        if len(inner.layers) != checkpoint.layers or not 0 <= first < end <= checkpoint.layers:
            raise EngineError(
                f"mlx-lm made {len(inner.layers)} layers, {first}..{end} of {checkpoint.layers} are asked for"
            )
        if dtype is not None:
            self._model.set_dtype(dtype)
        embedding, norm = inner.embed_tokens, inner.norm
        tied = "lm_head" not in text
        self._embed = embedding if embed else None
        self._head = (norm, embedding.as_linear if tied else text.lm_head) if head else None
        kept = [embedding] if embed or (head and tied) else []
        if head:
            kept += [norm] if tied else [norm, text.lm_head]
        inner.embed_tokens, inner.norm = nn.Identity(), nn.Identity()
        if not tied:
            text.lm_head = nn.Identity()
        self.layers = inner.layers = inner.layers[first:end]
        _renumber(inner, first, end)
        self._inner, self._text = inner, text
        mx.eval(inner.parameters(), [module.parameters() for module in kept])
        self.weights_bytes = _bytes(inner) + sum(map(_bytes, kept))

    def make_caches(self) -> list[Any]:
        """New caches, one a layer, of the kinds that mlx-lm's model asks for."""
        caches: list[Any] = make_prompt_cache(self._text)
        assert len(caches) == len(self.layers)
        return caches

    def embed(self, tokens: Any) -> Any:
        """Rows [tokens, hidden]."""
        if self._embed is None:
            raise EngineError("this stage was loaded without the embeddings")
        return self._embed(tokens)

    def forward(self, rows: Any, caches: list[Any]) -> Any:
        """Rows [n, hidden] of one stream through the layers."""
        return self._inner(rows[None], cache=caches)[0]

    def logits(self, rows: Any) -> Any:
        """Norm and output matrix: [n, vocabulary] f32."""
        if self._head is None:
            raise EngineError("this stage was loaded without a head")
        norm, output = self._head
        return output(norm(rows)).astype(mx.float32)


def _load(checkpoint: DirectoryCheckpoint) -> Any:
    try:
        model, _ = load_model(checkpoint.path, lazy=True, model_config=_spelled(checkpoint))
    except (ValueError, FileNotFoundError, KeyError, TypeError) as error:
        raise EngineError(f"{checkpoint.path}: mlx-lm cannot load it: {str(error)[:200]}") from error
    return model


def _spelled(checkpoint: DirectoryCheckpoint) -> dict[str, Any]:
    """What mlx-lm wants to read elsewhere than where newer releases of transformers write it."""
    config = checkpoint.config
    found: dict[str, Any] = {}
    family = checkpoint.model_type.removesuffix("_text")
    if "text_config" not in config:
        found["model_type"] = family
    rope = config.get("rope_parameters") or {}
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in rope and name not in config:
            found[name] = rope[name]
    if family == "qwen3_moe" and "num_local_experts" in config:
        found["num_experts"] = config["num_local_experts"]
    return found


def _renumber(inner: Any, first: int, end: int) -> None:
    """The places that a model keeps of its layers' kinds, for the layers that are left."""
    if isinstance(kinds := getattr(inner, "layer_types", None), list):
        inner.layer_types = kinds = kinds[first:end]
        places = {
            "fa_idx": _place(kinds, "full_attention", 0),
            "ga_idx": _place(kinds, "full_attention", 0),
            "swa_idx": _place(kinds, "sliding_attention", None if "fa_idx" in vars(inner) else 0),
        }
    else:
        linear = [getattr(layer, "is_linear", None) for layer in inner.layers]
        places = {"ssm_idx": _place(linear, True, None), "fa_idx": _place(linear, False, None)}
    for name, place in places.items():
        if hasattr(inner, name):
            setattr(inner, name, place)


def _place(kinds: list[Any], kind: object, otherwise: int | None) -> int | None:
    return kinds.index(kind) if kind in kinds else otherwise


def _bytes(module: Any) -> int:
    from mlx.utils import tree_flatten

    return sum(int(array.nbytes) for _, array in tree_flatten(module.parameters()))
