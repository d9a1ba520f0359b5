"""Tiny random models of every family, as transformers itself writes them to disk: the same for the same arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
    Qwen4ExpTextConfig,
)

VOCABULARY = 320
LAYERS = 5
"""An uneven number, and one more than a pattern of four."""

_BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.1,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_DELTA: dict[str, Any] = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
_SECTIONS = {**_PARTIAL, "mrope_section": [2, 1, 1]}


def _without(keys: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _qwen4() -> Any:
    return Qwen4ExpTextConfig(
        **_without(("intermediate_size",), _BASE),
        **_EXPERTS,
        **_DELTA,
        rope_parameters=_SECTIONS,
        hc_count=4,
        hc_lowrank=8,
        ple_layer_ids=[2, 5],
        ple_embed_dim=32,
        heads_per_ngram=2,
        ngram_vocab_size_base=500,
        split_ngram_parts=4,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=32,
        indexer_compress_ratio=4,
    )


FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**_BASE),
    "llama-tied": lambda: LlamaConfig(**_BASE, tie_word_embeddings=True),
    "mistral": lambda: MistralConfig(**_BASE, sliding_window=24),
    "qwen2": lambda: Qwen2Config(**_BASE),
    "qwen3": lambda: Qwen3Config(**_BASE, head_dim=16),
    "qwen3_moe": lambda: Qwen3MoeConfig(
        **_BASE, head_dim=16, **_without(("shared_expert_intermediate_size",), _EXPERTS)
    ),
    "qwen3_next": lambda: Qwen3NextConfig(**_BASE, **_EXPERTS, **_DELTA, rope_parameters=_PARTIAL),
    "qwen3_5": lambda: Qwen3_5TextConfig(**_BASE, **_DELTA, rope_parameters=_SECTIONS),
    "qwen3_5_moe": lambda: Qwen3_5MoeTextConfig(
        **_without(("intermediate_size",), _BASE), **_EXPERTS, **_DELTA, rope_parameters=_SECTIONS
    ),
    "qwen4_exp": _qwen4,
    "gemma3": lambda: Gemma3TextConfig(
        **_BASE,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=24,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    ),
    "gpt_oss": lambda: GptOssConfig(
        **_BASE, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=24
    ),
}
RECURRENT = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen4_exp")


def make_model(family: str, dtype: torch.dtype, seed: int = 0) -> PreTrainedModel:
    """The model, with random weights; vectors too, so that no norm and no bias stands at its default."""
    torch.manual_seed(seed)
    config = FAMILIES[family]()
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=_attention(family))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and "A_log" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def write_model(path: Path, family: str, dtype: torch.dtype, seed: int = 0) -> Path:
    """Save it, as a checkpoint on the hub lies."""
    make_model(family, dtype, seed).save_pretrained(path)
    return path


def load_model(path: Path, family: str) -> PreTrainedModel:
    """transformers' own model from that directory: the oracle."""
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype="auto", attn_implementation=_attention(family), experts_implementation="eager"
    )
    return model.eval()


def _attention(family: str) -> str:
    return "eager" if family == "gpt_oss" else "sdpa"


def write_next_token_head(path: Path, family: str, dtype: torch.dtype, seed: int = 1) -> None:
    """Put a random next-token head beside a model's weights, under the names that Qwen's checkpoints have."""
    torch.manual_seed(seed)
    config = FAMILIES[family]()
    config.layer_types, config.num_hidden_layers = ["full_attention"], 1
    streams = family == "qwen4_exp"
    if streams:
        config.ple_layer_ids = []
    small = AutoModelForCausalLM.from_config(config, dtype=dtype)
    names = {f"mtp.{name.removeprefix('model.')}": value for name, value in small.state_dict().items()}
    kept = ("mtp.layers.0.", "mtp.norm.", "mtp.hyper_connection_mixer.")
    tensors = {name: value for name, value in names.items() if name.startswith(kept)}
    width = config.hidden_size
    matrices = {"fc_embedding": width, "fc_hidden": width} if streams else {"fc": 2 * width}
    norms = {"pre_fc_norm_embedding": width, "pre_fc_norm_hidden": width * (config.hc_count if streams else 1)}
    for name, columns in matrices.items():
        tensors[f"mtp.{name}.weight"] = torch.randn(width, columns, dtype=dtype) * 0.1
    for name, columns in norms.items():
        tensors[f"mtp.{name}.weight"] = torch.randn(columns, dtype=dtype) * 0.1
    save_file({name: value.contiguous() for name, value in tensors.items()}, path / "model-mtp.safetensors")


def main() -> None:
    """Every family into a folder: python tests/engines/torch/tiny_models.py FOLDER [f32|bf16]"""
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[2] if len(sys.argv) > 2 else "bf16"]
    for family in FAMILIES:
        write_model(Path(sys.argv[1]) / family, family, dtype)


if __name__ == "__main__":
    main()
