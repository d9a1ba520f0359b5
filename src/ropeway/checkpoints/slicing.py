"""Cutting a GGUF by layers: each stage's own small file, which llama.cpp loads as it is.

`plan_slice` is the recipe, a pure function of the header; `slice_stage` writes what it says into the cache. How
llama.cpp runs such files: a stage is fed rows instead of tokens, so it needs no vocabulary; one more layer of zeros
lets the output of its last real layer be read as that layer's input; the head alone stands behind one layer of zeros,
which passes rows through unchanged, because a model without layers does not load.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from math import prod
from pathlib import Path

from ropeway.checkpoints.cache import cache_directory, cached_file
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
from ropeway.checkpoints.gguf_write import OutTensor, encode_header, file_bytes, write_gguf
from ropeway.checkpoints.identity import content_key

RECIPE = 1
"""Goes up whenever `plan_slice` says something else for the same input; part of the cache's key."""

STAGE_VOCABULARY = 32
"""Rows of the zero embedding matrix of a file without the head: the fewest of a whole quantized block."""

HEAD_WIDTH = 32
"""Feed-forward width and attention head size of the zero layer in front of a head that stands alone."""

SLICES = "slices"
"""Where slices lie inside the cache."""

_KEPT_GENERAL = ("general.architecture", "general.name", "general.file_type", "general.quantization_version")


class SliceKind(Enum):
    """`stage`: layers and an extra layer of zeros. `tail`: layers and the head. `head`: the head alone."""

    STAGE = "stage"
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
    kind = SliceKind.HEAD if first == end else SliceKind.TAIL if head else SliceKind.STAGE
    tensors = [_embeddings(gguf, head)]
    if head:
        tensors += [_copy(info, name) for name in sorted(family.head) if (info := gguf.tensors.get(name))]
    else:
        tensors.append(PlannedTensor(OUTPUT_NORM, GgmlType.F32, gguf.tensors[OUTPUT_NORM].shape, Fill.ONES))
    if kind is SliceKind.HEAD:
        tensors += _head_layer(gguf.tensors[EMBEDDINGS].shape[0])
        return SlicePlan(kind, first, end, _head_fields(gguf), tuple(tensors))
    tensors += [_copy(info, name) for name in sorted(family.shared) if (info := gguf.tensors.get(name))]
    for layer in range(first, end):
        tensors += [_copy(info, _rename(info.name, layer - first)) for info in by_layer[layer]]
    if kind is SliceKind.STAGE:
        tensors += [_zeros(_rename(info.name, end - first), info.shape) for info in by_layer[end - 1]]
    return SlicePlan(kind, first, end, _stage_fields(gguf, first, end, head), tuple(tensors))


def _tensors_by_layer(gguf: GgufFile, layers: int) -> list[list[TensorInfo]]:
    found: list[list[TensorInfo]] = [[] for _ in range(layers)]
    for info in gguf.tensors.values():
        if not info.name.startswith("blk."):
            continue
        number = info.name.split(".")[1]
        if not number.isascii() or not number.isdecimal() or not int(number) < layers:
            raise CheckpointError(f"{gguf.path}: tensor {info.name} belongs to no layer of 0..{layers}")
        found[int(number)].append(info)
    names = [sorted(_rename(info.name, 0) for info in layer) for layer in found]
    for layer, of_layer in enumerate(names):
        if not of_layer or of_layer != names[0]:
            raise CheckpointError(f"{gguf.path}: layer {layer} does not have the same tensors as layer 0")
    return found


def _rename(name: str, layer: int) -> str:
    return f"blk.{layer}.{name.split('.', 2)[2]}"


def _copy(info: TensorInfo, name: str) -> PlannedTensor:
    return PlannedTensor(name, info.type, info.shape, Fill.COPY, info.name)


def _embeddings(gguf: GgufFile, head: bool) -> PlannedTensor:
    """The real matrix only where the head is tied to it: rows come in ready, so nothing else reads it."""
    info = gguf.tensors[EMBEDDINGS]
    if head and OUTPUT not in gguf.tensors:
        return _copy(info, EMBEDDINGS)
    shape = (info.shape[0], vocabulary_size(gguf) if head else STAGE_VOCABULARY)
    return PlannedTensor(EMBEDDINGS, _zero_type(shape[0]), shape, Fill.ZEROS)


def _zeros(name: str, shape: tuple[int, ...]) -> PlannedTensor:
    """A tensor of a layer that passes rows through: matrices and biases are zeros, norms ones."""
    if len(shape) > 1:
        return PlannedTensor(name, _zero_type(shape[0]), shape, Fill.ZEROS)
    return PlannedTensor(name, GgmlType.F32, shape, Fill.ONES if name.endswith("_norm.weight") else Fill.ZEROS)


def _zero_type(row: int) -> GgmlType:
    return GgmlType.Q4_0 if row % GgmlType.Q4_0.block_values == 0 else GgmlType.F16


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


def _stage_fields(gguf: GgufFile, first: int, end: int, head: bool) -> dict[str, Field]:
    extra = 0 if head else 1
    fields = _fields(gguf, end - first + extra, vocabulary_size(gguf) if head else STAGE_VOCABULARY)
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


def out_tensors(gguf: GgufFile, plan: SlicePlan) -> list[OutTensor]:
    """The plan's tensors with where their bytes come from."""
    return [OutTensor(tensor.name, tensor.type, tensor.shape, _data(gguf, tensor)) for tensor in plan.tensors]


def _data(gguf: GgufFile, tensor: PlannedTensor) -> memoryview | None:
    match tensor.fill:
        case Fill.COPY:
            return gguf.tensor_bytes(tensor.source)
        case Fill.ONES:
            return memoryview(struct.pack("<f", 1.0) * prod(tensor.shape))
        case Fill.ZEROS:
            return None


def slice_stage(path: str | Path, first: int, end: int, head: bool, cache_dir: Path | None = None) -> Path:
    """The stage's own GGUF in the cache, written if it is not there yet.

    Raises CheckpointError as `plan_slice` does, or when the file cannot be read or stored.
    """
    gguf = GgufFile.open(path)
    plan = plan_slice(gguf, first, end, head)
    tensors = out_tensors(gguf, plan)
    header = encode_header(plan.fields, tensors)
    key = content_key(gguf, [gguf.tensors[tensor.source] for tensor in plan.tensors if tensor.source])
    directory = (cache_dir or cache_directory()) / SLICES
    name = f"{key[:32]}-r{RECIPE}-{plan.kind.value}-{first}-{end}.gguf"
    return cached_file(directory / name, file_bytes(header, tensors), lambda file: write_gguf(file, header, tensors))
