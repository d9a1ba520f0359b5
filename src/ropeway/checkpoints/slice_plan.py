"""The recipe of a stage's own GGUF, which llama.cpp loads as it is: a pure function of the checkpoint's header.

A stage is fed rows instead of tokens, so it needs no vocabulary. One more layer of zeros lets the output of its last
real layer be read as that layer's input; the model's last layer has none behind it, so that it runs on just the rows
that are wanted, as it does in the whole model. The head alone stands behind one layer of zeros, which passes rows
through unchanged, because a model without layers does not load.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.families import (
    EMBEDDINGS,
    OUTPUT,
    OUTPUT_NORM,
    PER_LAYER_ARRAYS,
    family_of,
    layer_count,
    vocabulary_size,
)
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile, TensorInfo
from ropeway.checkpoints.gguf_values import Field, ValueType, scalar_field

STAGE_VOCABULARY = 32
"""Rows of the zero embedding matrix of a file without the head: the fewest of a whole quantized block."""

HEAD_WIDTH = 32
"""Feed-forward width and attention head size of the zero layer in front of a head that stands alone."""

_LAYER_TENSOR = re.compile(r"blk\.(0|[1-9][0-9]*)\..+", re.ASCII | re.DOTALL)
_KEPT_GENERAL = ("general.architecture", "general.name", "general.file_type", "general.quantization_version")


class SliceKind(Enum):
    """What a slice holds.

    `stage`: layers and an extra layer of zeros. `last`: the model's last layers, without the head. `tail`: the last
    layers and the head. `head`: the head alone.
    """

    STAGE = "stage"
    LAST = "last"
    TAIL = "tail"
    HEAD = "head"


class Fill(Enum):
    """Where a planned tensor's values come from."""

    COPY = "copy"
    ZEROS = "zeros"
    ONES = "ones"


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One tensor of a slice; with `COPY`, `source` is the tensor of the checkpoint that it repeats byte for byte."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    fill: Fill
    source: str = ""


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """What a slice's file holds. Layers first..end of the checkpoint are its layers 0..end-first."""

    kind: SliceKind
    first: int
    end: int
    fields: dict[str, Field]
    tensors: tuple[PlannedTensor, ...]


def plan_slice(gguf: GgufFile, first: int, end: int, head: bool) -> SlicePlan:
    """The recipe for layers first..end, with the head or without; the head alone where first == end.

    Raises CheckpointError for an architecture that cannot be cut, a range outside the model, or an incomplete layer.
    """
    family = family_of(gguf)
    layers = layer_count(gguf)
    if not 0 <= first <= end <= layers or (first == end and not head):
        raise CheckpointError(f"{gguf.path}: layers {first}..{end} are not a range of the model's {layers} layers")
    if head and end != layers:
        raise CheckpointError(f"{gguf.path}: the head stands behind layer {layers}, not behind layer {end}")
    by_layer = _tensors_by_layer(gguf, layers)
    kind = _kind(first, end, head, layers)
    width = gguf.tensors[EMBEDDINGS].shape[0]
    if head:
        # llama.cpp takes the embeddings as the output matrix where there is no other. Nothing here reads embeddings.
        output = gguf.tensors[OUTPUT if OUTPUT in gguf.tensors else EMBEDDINGS]
        tensors = [_copy(output, EMBEDDINGS), _copy(gguf.tensors[OUTPUT_NORM], OUTPUT_NORM)]
    else:
        tensors = [_zeros(EMBEDDINGS, (width, STAGE_VOCABULARY)), _zeros(OUTPUT_NORM, (width,))]
    if kind is SliceKind.HEAD:
        tensors += _head_layer(width)
        return SlicePlan(kind, first, end, _head_fields(gguf), tuple(tensors))
    tensors += [_copy(info, name) for name in sorted(family.shared) if (info := gguf.tensors.get(name))]
    for layer in range(first, end):
        tensors += [_copy(info, _rename(info.name, layer - first)) for info in by_layer[layer]]
    if kind is SliceKind.STAGE:
        tensors += _extra_layer(by_layer[end - 1], end - first)
    return SlicePlan(kind, first, end, _stage_fields(gguf, first, end, kind), tuple(tensors))


def _kind(first: int, end: int, head: bool, layers: int) -> SliceKind:
    if first == end:
        return SliceKind.HEAD
    if head:
        return SliceKind.TAIL
    return SliceKind.LAST if end == layers else SliceKind.STAGE


def _tensors_by_layer(gguf: GgufFile, layers: int) -> list[list[TensorInfo]]:
    found: list[list[TensorInfo]] = [[] for _ in range(layers)]
    for info in gguf.tensors.values():
        if not info.name.startswith("blk."):
            continue
        match = _LAYER_TENSOR.fullmatch(info.name)
        if match is None or int(match[1]) >= layers:
            raise CheckpointError(f"{gguf.path}: tensor {info.name} belongs to no layer of 0..{layers}")
        found[int(match[1])].append(info)
    names = [sorted(_rename(info.name, 0) for info in layer) for layer in found]
    for layer, of_layer in enumerate(names):
        if not of_layer or of_layer != names[0]:
            raise CheckpointError(f"{gguf.path}: layer {layer} does not have the same tensors as layer 0")
    return found


def _rename(name: str, layer: int) -> str:
    return f"blk.{layer}.{name.split('.', 2)[2]}"


def _copy(info: TensorInfo, name: str) -> PlannedTensor:
    return PlannedTensor(name, info.type, info.shape, Fill.COPY, info.name)


def _zeros(name: str, shape: tuple[int, ...], idle: bool = False) -> PlannedTensor:
    """A tensor of a layer that passes rows through: matrices and biases are zeros, norms ones.

    A matrix takes a type that computes fast everywhere; an `idle` one, which is loaded and never used, the smallest.
    """
    if len(shape) == 1:
        return PlannedTensor(name, GgmlType.F32, shape, Fill.ONES if name.endswith("norm.weight") else Fill.ZEROS)
    for kind in (GgmlType.IQ1_S, GgmlType.Q4_0) if idle else (GgmlType.Q4_0,):
        if shape[0] % kind.block_values == 0:
            return PlannedTensor(name, kind, shape, Fill.ZEROS)
    return PlannedTensor(name, GgmlType.F16, shape, Fill.ZEROS)


def _extra_layer(like: list[TensorInfo], layer: int) -> list[PlannedTensor]:
    """The layer of zeros behind a stage's own. Its attention runs; its feed-forward does not: no row is an output."""
    return [_zeros(_rename(info.name, layer), info.shape, idle=".ffn_" in info.name) for info in like]


def _head_layer(width: int) -> list[PlannedTensor]:
    """The zero layer of `_head_fields`: one attention head, and everything as narrow as loads."""
    shapes = {
        "attn_norm": (width,),
        "attn_q": (width, HEAD_WIDTH),
        "attn_k": (width, HEAD_WIDTH),
        "attn_v": (width, HEAD_WIDTH),
        "attn_output": (HEAD_WIDTH, width),
        "ffn_norm": (width,),
        "ffn_gate": (width, HEAD_WIDTH),
        "ffn_up": (width, HEAD_WIDTH),
        "ffn_down": (HEAD_WIDTH, width),
    }
    return [_zeros(f"blk.0.{name}.weight", shape) for name, shape in shapes.items()]


def _fields(gguf: GgufFile, layers: int, vocabulary: int) -> dict[str, Field]:
    """The metadata that every slice has: the checkpoint's own without the tokenizer and without what is for people."""
    prefix = gguf.architecture + "."
    fields = {
        key: field for key, field in gguf.metadata.fields.items() if key in _KEPT_GENERAL or key.startswith(prefix)
    }
    fields[prefix + "block_count"] = scalar_field(ValueType.UINT32, layers)
    fields[prefix + "vocab_size"] = scalar_field(ValueType.UINT32, vocabulary)
    fields["tokenizer.ggml.model"] = scalar_field(ValueType.STRING, "none")
    return fields


def _stage_fields(gguf: GgufFile, first: int, end: int, kind: SliceKind) -> dict[str, Field]:
    extra = 1 if kind is SliceKind.STAGE else 0
    vocabulary = vocabulary_size(gguf) if kind is SliceKind.TAIL else STAGE_VOCABULARY
    fields = _fields(gguf, end - first + extra, vocabulary)
    prefix, layers = gguf.architecture + ".", layer_count(gguf)
    for key, field in fields.items():
        if field.kind is not ValueType.ARRAY:
            continue
        short = key.removeprefix(prefix)
        if short not in PER_LAYER_ARRAYS or field.count != layers or field.item is ValueType.STRING:
            raise CheckpointError(f"{gguf.path}: the array {key} cannot be cut by layers yet")
        fields[key] = field.take([*range(first, end), *[end - 1] * extra])
    return fields


def _head_fields(gguf: GgufFile) -> dict[str, Field]:
    """A head is an RMS norm and a matrix in every family here, so its file is a small Llama, whatever the model is."""
    prefix = gguf.architecture + "."
    fields = {
        "general.architecture": scalar_field(ValueType.STRING, "llama"),
        "tokenizer.ggml.model": scalar_field(ValueType.STRING, "none"),
    }
    fields |= {key: field for key, field in gguf.metadata.fields.items() if key in _KEPT_GENERAL and key not in fields}
    for short in ("context_length", "embedding_length", "attention.layer_norm_rms_epsilon"):
        field = gguf.metadata.fields.get(prefix + short)
        if field is None:
            raise CheckpointError(f"{gguf.path}: the metadata has no {prefix}{short}")
        fields["llama." + short] = field
    sizes = {
        "block_count": 1,
        "vocab_size": vocabulary_size(gguf),
        "feed_forward_length": HEAD_WIDTH,
        "attention.head_count": 1,
        "attention.head_count_kv": 1,
        "attention.key_length": HEAD_WIDTH,
        "attention.value_length": HEAD_WIDTH,
        "rope.dimension_count": HEAD_WIDTH,
    }
    return fields | {f"llama.{short}": scalar_field(ValueType.UINT32, size) for short, size in sizes.items()}
