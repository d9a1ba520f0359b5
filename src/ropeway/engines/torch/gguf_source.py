"""A GGUF's weights under transformers' names, dequantized to f32 as they are asked for.

Llama's Q and K rows lie in GGUF in another order (llama.cpp's convert_hf_to_gguf.py, LlamaModel.permute).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from ropeway.checkpoints import families
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.engines.torch.four_bit import FourBit, q4_blocks
from ropeway.engines.torch.sources import EMBEDDINGS, HEAD

_LAYER: Final = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_OUTSIDE: Final = {EMBEDDINGS: families.EMBEDDINGS, HEAD: families.OUTPUT, "norm.weight": families.OUTPUT_NORM}
_PERMUTED: Final = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")


class GgufSource:
    """One GGUF of the architectures llama, qwen2 and qwen3, dense."""

    def __init__(self, path: Path) -> None:
        self._gguf = GgufFile.open(path)
        family = families.family_of(self._gguf)
        if extra := sorted(family.shared & set(self._gguf.tensors)):
            raise CheckpointError(f"{path}: the engine torch does not read {extra[0]}; use llamacpp")
        self.tied = families.OUTPUT not in self._gguf.tensors
        self.config = _config(self._gguf, tied=self.tied)

    def tensor(self, name: str, shape: torch.Size) -> Tensor:
        """As `Source`; f32."""
        stored = self._stored(name)
        info = self._gguf.tensors.get(stored)
        if info is None:
            raise CheckpointError(f"{self._gguf.path}: there is no tensor {stored}")
        if tuple(reversed(info.shape)) != tuple(shape):
            raise CheckpointError(
                f"{self._gguf.path}: tensor {stored} has the shape {list(reversed(info.shape))}, "
                f"the metadata needs {list(shape)}"
            )
        values = torch.from_numpy(_dequantized(self._gguf.tensor_bytes(stored), info.type, tuple(shape)))
        ordered = self._order(name, values)
        return values if ordered is None else ordered

    def has(self, name: str) -> bool:
        """As `Source`."""
        return self._stored(name) in self._gguf.tensors

    def in_four_bits(self, name: str) -> bool:
        """As `Source`: Q4_0 and Q4_1."""
        info = self._gguf.tensors.get(self._stored(name))
        return info is not None and info.type in (GgmlType.Q4_0, GgmlType.Q4_1)

    def four_bit(self, name: str) -> FourBit:
        """As `Source`."""
        info = self._gguf.tensors[self._stored(name)]
        raw = torch.from_numpy(np.frombuffer(self._gguf.tensor_bytes(info.name), np.uint8).copy())
        matrix = q4_blocks(raw, info.shape[1], with_minimum=info.type is GgmlType.Q4_1)
        order = self._order(name, torch.arange(info.shape[1]))
        return matrix if order is None else matrix.rows(order)

    def _order(self, name: str, rows: Tensor) -> Tensor | None:
        """Rows [n, ...] of Q or K as transformers has them; None for what lies in GGUF in the same order."""
        if self._gguf.architecture != "llama" or not name.endswith(_PERMUTED):
            return None
        heads = self.config.num_attention_heads if ".q_proj." in name else self.config.num_key_value_heads
        return rows.view(heads, rows.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(rows.shape)

    def shards(self, name: str) -> list[Tensor]:
        """As `Source`: a GGUF has every table in one piece."""
        return []

    def bytes_under(self, prefix: str) -> int:
        """As `Source`."""
        stored = self._stored(prefix) if prefix.startswith("layers.") else self._stored(f"{prefix}weight")
        return sum(info.nbytes for info in self._gguf.tensors.values() if info.name.startswith(stored))

    @staticmethod
    def _stored(name: str) -> str:
        if name in _OUTSIDE:
            return _OUTSIDE[name]
        if not name.startswith("layers."):
            return name
        _, layer, rest = name.split(".", 2)
        return f"blk.{layer}.{_LAYER.get(rest, rest)}"


def _dequantized(data: memoryview, kind: GgmlType, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A tensor's values, f32, in memory of their own."""
    raw = np.frombuffer(data, np.uint8)
    if kind is GgmlType.F32:
        return raw.view("<f4").reshape(shape).copy()
    if kind is GgmlType.F16:
        return raw.view("<f2").astype(np.float32).reshape(shape)
    if kind is GgmlType.BF16:
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        values = dequantize(raw.reshape(shape[0], -1), GGMLQuantizationType(kind))
    except NotImplementedError:
        raise CheckpointError(f"tensors of type {kind.name} cannot be dequantized; use llamacpp") from None
    return np.ascontiguousarray(values, np.float32)


def _config(gguf: GgufFile, *, tied: bool) -> Any:
    """transformers' configuration for a GGUF's metadata."""
    metadata, prefix = gguf.metadata, gguf.architecture
    if "rope.scaling.type" in [key.removeprefix(f"{prefix}.") for key in metadata.fields]:
        kind = metadata.text(f"{prefix}.rope.scaling.type")
        if kind != "none":
            raise CheckpointError(f"{gguf.path}: the engine torch does not read RoPE scaling {kind!r}; use llamacpp")
    if metadata.get(f"{prefix}.expert_count"):
        raise CheckpointError(f"{gguf.path}: the engine torch does not read a GGUF with experts; use llamacpp")
    width = metadata.integer(f"{prefix}.embedding_length")
    heads = metadata.integer(f"{prefix}.attention.head_count")
    values = {
        "vocab_size": families.vocabulary_size(gguf),
        "hidden_size": width,
        "intermediate_size": metadata.integer(f"{prefix}.feed_forward_length"),
        "num_hidden_layers": families.layer_count(gguf),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.integer(f"{prefix}.attention.head_count_kv", heads),
        "head_dim": metadata.integer(f"{prefix}.attention.key_length", width // heads),
        "rms_norm_eps": float(str(metadata[f"{prefix}.attention.layer_norm_rms_epsilon"])),
        "max_position_embeddings": metadata.integer(f"{prefix}.context_length", 1 << 20),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": float(str(metadata.get(f"{prefix}.rope.freq_base", 10000.0))),
        },
        "tie_word_embeddings": tied,
    }
    match prefix:
        case "llama":
            from transformers import LlamaConfig

            return LlamaConfig(**values)
        case "qwen2":
            from transformers import Qwen2Config

            values.pop("head_dim")
            return Qwen2Config(**values)
        case "qwen3":
            from transformers import Qwen3Config

            return Qwen3Config(**values)
        case _:
            raise CheckpointError(f"{gguf.path}: the engine torch does not read {prefix} from a GGUF")
