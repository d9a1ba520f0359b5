"""A whole tiny llama as a checkpoint directory, random weights, f32 unless told: the same for the same arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiny_gguf import HEADS, KV_HEADS, VOCABULARY
from tiny_safetensors import write_directory
from tiny_tokenizer import write_tokenizer

WIDTH, FEED_FORWARD = 64, 96


def write_tiny_llama(path: Path, layers: int = 4, *, dtype: str = "float32", seed: int = 0) -> Path:
    """Write the directory, with a tokenizer."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": WIDTH // HEADS,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "torch_dtype": dtype,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    tensors = {name: _as(values, dtype) for name, values in _weights(layers, seed).items()}
    return write_tokenizer(write_directory(path, config, tensors))


def _as(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return values.astype(dtype)


def _weights(layers: int, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    kv = WIDTH // HEADS * KV_HEADS

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return rng.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))

    def vector() -> npt.NDArray[np.float32]:
        return np.float32(1) + rng.standard_normal(WIDTH, np.float32) / np.float32(4)

    found = {"model.embed_tokens.weight": matrix(VOCABULARY, WIDTH)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        found |= {
            f"{at}input_layernorm.weight": vector(),
            f"{at}self_attn.q_proj.weight": matrix(WIDTH, WIDTH),
            f"{at}self_attn.k_proj.weight": matrix(kv, WIDTH),
            f"{at}self_attn.v_proj.weight": matrix(kv, WIDTH),
            f"{at}self_attn.o_proj.weight": matrix(WIDTH, WIDTH),
            f"{at}post_attention_layernorm.weight": vector(),
            f"{at}mlp.gate_proj.weight": matrix(FEED_FORWARD, WIDTH),
            f"{at}mlp.up_proj.weight": matrix(FEED_FORWARD, WIDTH),
            f"{at}mlp.down_proj.weight": matrix(WIDTH, FEED_FORWARD),
        }
    return found | {"model.norm.weight": vector(), "lm_head.weight": matrix(VOCABULARY, WIDTH)}
