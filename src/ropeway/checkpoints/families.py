"""The architectures whose GGUF files can be cut by layers, and what each keeps outside its layers.

Everything that is not in this table is refused by name: a wrong cut would give wrong text, not an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.gguf_file import GgufFile, TensorInfo

EMBEDDINGS = "token_embd.weight"
OUTPUT = "output.weight"
OUTPUT_NORM = "output_norm.weight"

PER_LAYER_ARRAYS = frozenset({"attention.head_count", "attention.head_count_kv", "feed_forward_length"})
"""Metadata (after the architecture's prefix) that may be an array with one item a layer."""


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture. `shared` are the tensors outside the layers that every stage needs, where there are any."""

    shared: frozenset[str]


FAMILIES = {
    # Llama 1 to 3, SmolLM, Mistral, Mixtral
    "llama": Family(frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})),
    # Qwen2 and Qwen2.5, dense
    "qwen2": Family(frozenset()),
    # Qwen3, dense
    "qwen3": Family(frozenset()),
}
"""By `general.architecture`."""


def family_of(gguf: GgufFile) -> Family:
    """The family of a checkpoint. Raises CheckpointError, with the reason, for one that cannot be cut."""
    architecture = gguf.architecture
    family = FAMILIES.get(architecture)
    if family is None:
        raise CheckpointError(
            f"{gguf.path}: models of the architecture {architecture!r} cannot be split yet; {', '.join(FAMILIES)} can"
        )
    kind = gguf.metadata.text("general.type", "model")
    if kind != "model":
        raise CheckpointError(f"{gguf.path}: this file holds a {kind}, not a model")
    parts = gguf.metadata.integer("split.count", 1)
    if parts > 1:
        raise CheckpointError(
            f"{gguf.path}: this is one of {parts} files of a model; join them first: ropeway pull FIRST_FILE"
        )
    outside = {name for name in gguf.tensors if not name.startswith("blk.")}
    if unknown := sorted(outside - family.shared - {EMBEDDINGS, OUTPUT, OUTPUT_NORM}):
        raise CheckpointError(f"{gguf.path}: a {architecture} model with {unknown[0]} cannot be split yet")
    embeddings(gguf)
    if OUTPUT_NORM not in outside:
        raise CheckpointError(f"{gguf.path}: there is no tensor {OUTPUT_NORM}")
    return family


def embeddings(gguf: GgufFile) -> TensorInfo:
    """The embedding matrix, of shape (width, vocabulary). Raises CheckpointError when there is none."""
    info = gguf.tensors.get(EMBEDDINGS)
    if info is None:
        raise CheckpointError(f"{gguf.path}: there is no tensor {EMBEDDINGS}")
    if len(info.shape) != 2:
        raise CheckpointError(f"{gguf.path}: tensor {EMBEDDINGS} is not a matrix")
    return info


def layer_count(gguf: GgufFile) -> int:
    """Layers of the model. Raises CheckpointError when the metadata does not say, or says none."""
    layers = gguf.metadata.integer(f"{gguf.architecture}.block_count")
    if not 1 <= layers <= len(gguf.tensors):
        raise CheckpointError(f"{gguf.path}: the metadata counts {layers} layers, for {len(gguf.tensors)} tensors")
    return layers


def vocabulary_size(gguf: GgufFile) -> int:
    """Rows of the embedding matrix."""
    return embeddings(gguf).shape[1]


def kv_row_bytes(gguf: GgufFile) -> int:
    """Bytes of one position's f16 keys and values in one layer (the widest, where layers differ)."""
    prefix, metadata = gguf.architecture, gguf.metadata
    heads = metadata[f"{prefix}.attention.head_count"]
    most = max(heads) if isinstance(heads, list) else heads
    kv_heads = metadata.get(f"{prefix}.attention.head_count_kv", heads)
    kv_most = max(kv_heads) if isinstance(kv_heads, list) else kv_heads
    size = metadata.integer(f"{prefix}.embedding_length") // int(most)
    keys = metadata.integer(f"{prefix}.attention.key_length", size)
    values = metadata.integer(f"{prefix}.attention.value_length", size)
    return 2 * int(kv_most) * (keys + values)
