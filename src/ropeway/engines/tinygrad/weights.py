"""A GGUF's facts and matrices for tinygrad's blocks: which families they compute rightly, and weights as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.families import EMBEDDINGS, OUTPUT, OUTPUT_NORM, layer_count
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.gguf_values import Metadata

ROPE_FACTORS: Final = "rope_freqs.weight"
ARCHITECTURES: Final = frozenset({"llama", "qwen3", "qwen3moe"})
"""What tinygrad's block computes: RMS norms, rotary positions over whole heads, SwiGLU or a mixture, no biases."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The model's shape. `head_dim` values a head; `experts` of which `used` run a token, 0 without a mixture."""

    architecture: str
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    rope_base: float
    qk_norm: bool
    experts: int
    used: int
    vocabulary: int


def read_facts(gguf: GgufFile) -> Facts:
    """The shape of a family that tinygrad's block computes rightly. Raises CheckpointError for any other, by name."""
    name = gguf.architecture
    if name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise CheckpointError(f"{gguf.path}: the engine tinygrad knows {known}, not {name}")
    metadata = gguf.metadata
    width = metadata.integer(f"{name}.embedding_length")
    heads = metadata.integer(f"{name}.attention.head_count")
    head_dim = metadata.integer(f"{name}.attention.key_length", width // heads)
    if metadata.integer(f"{name}.rope.dimension_count", head_dim) != head_dim:
        raise CheckpointError(f"{gguf.path}: rotary positions over a part of each head, which tinygrad's block has not")
    scaling = metadata.text(f"{name}.rope.scaling.type", "none")
    if scaling != "none":
        raise CheckpointError(f"{gguf.path}: rotary positions scaled by {scaling!r}, which the engine tinygrad has not")
    experts = metadata.integer(f"{name}.expert_count", 0)
    if any(tensor.endswith(".bias") for tensor in gguf.tensors):
        raise CheckpointError(f"{gguf.path}: matrices with biases, which tinygrad's block has not")
    return Facts(
        architecture=name,
        layers=layer_count(gguf),
        width=width,
        feed_forward=metadata.integer(
            f"{name}.expert_feed_forward_length", metadata.integer(f"{name}.feed_forward_length", 0)
        ),
        heads=heads,
        kv_heads=metadata.integer(f"{name}.attention.head_count_kv", heads),
        head_dim=head_dim,
        epsilon=_number(metadata, f"{name}.attention.layer_norm_rms_epsilon", None),
        rope_base=_number(metadata, f"{name}.rope.freq_base", 10000.0),
        qk_norm="blk.0.attn_q_norm.weight" in gguf.tensors,
        experts=experts,
        used=metadata.integer(f"{name}.expert_used_count", 0),
        vocabulary=gguf.tensors[EMBEDDINGS].shape[1],
    )


def _number(metadata: Metadata, key: str, default: float | None) -> float:
    value = metadata.get(key, default)
    if not isinstance(value, float):
        raise CheckpointError(f"{metadata.name}: {key} should be a number and is {value!r}")
    return value


def layer_names(gguf: GgufFile, layer: int) -> list[str]:
    """The tensors of one layer."""
    prefix = f"blk.{layer}."
    return [name for name in gguf.tensors if name.startswith(prefix)]


def held_bytes(gguf: GgufFile, first: int, end: int, *, embed: bool, head: bool) -> int:
    """Bytes of the checkpoint that a stage holds; a tied matrix counts once for each of its two uses."""
    names = [name for layer in range(first, end) for name in layer_names(gguf, layer)]
    names += [EMBEDDINGS] if embed else []
    names += [OUTPUT_NORM, output_name(gguf)] if head else []
    return sum(gguf.tensors[name].nbytes for name in names)


def output_name(gguf: GgufFile) -> str:
    """The output matrix, which may be the embeddings."""
    return OUTPUT if OUTPUT in gguf.tensors else EMBEDDINGS


def matrix(gguf: GgufFile, name: str) -> npt.NDArray[np.float32]:
    """One tensor as f32, outermost dimension first, in memory of its own.

    Raises CheckpointError for a type that cannot be dequantized.
    """
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    info = gguf.tensors[name]
    raw = np.frombuffer(gguf.tensor_bytes(name), np.uint8)
    shape = tuple(reversed(info.shape))
    rows = raw.reshape(-1, info.nbytes * info.shape[0] // int(np.prod(info.shape)))
    try:
        values: npt.NDArray[np.float32] = dequantize(rows, GGMLQuantizationType(info.type))
    except NotImplementedError:
        raise CheckpointError(f"{gguf.path}: tensor {name} of type {info.type.name} cannot be read") from None
    return np.require(values, np.float32, "W").reshape(shape)


def split_halves(values: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """A Q or K matrix of a llama GGUF, whose rows alternate, with each head's rotary halves behind one another."""
    rows, width = values.shape
    return values.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)
