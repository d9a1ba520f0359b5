"""A checkpoint as placement sees it: its layers' kinds and sizes, from the header alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ropeway.checkpoints.checkpoint import Format, open_checkpoint
from ropeway.checkpoints.families import EMBEDDINGS, OUTPUT, OUTPUT_NORM
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.placement.facts import Layer, Model

_LAYER: Final = re.compile(r"(?:blk|(?:model\.)?(?:language_model\.)?layers)\.(\d+)\.(.+)")
_LINEAR: Final = re.compile(r"ssm_|linear_attn|mamba|conv1d")
_EXPERTS: Final = re.compile(r"_exps|experts")


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int


def model_facts(path: Path, name: str = "") -> Model:
    """What a placement needs to know of the checkpoint at `path`. Raises CheckpointError."""
    checkpoint = open_checkpoint(path)
    tensors = _gguf(path) if checkpoint.format is Format.GGUF else _safetensors(path)
    embed, head = _ends(tensors)
    return Model(
        name or path.stem,
        _layers(tensors, checkpoint.layers, checkpoint.kv_row_bytes),
        checkpoint.boundary.row_bytes(),
        embed,
        head,
    )


def _gguf(path: Path) -> list[_Tensor]:
    return [_Tensor(t.name, t.type.name, t.shape, t.nbytes) for t in GgufFile.open(path).tensors.values()]


def _safetensors(path: Path) -> list[_Tensor]:
    from ropeway.checkpoints.directory import DirectoryCheckpoint

    return [_Tensor(t.name, t.dtype.label, t.shape, t.nbytes) for t in DirectoryCheckpoint(path).tensors.values()]


def _layers(tensors: Iterable[_Tensor], count: int, kv_row_bytes: int) -> tuple[Layer, ...]:
    """The layers with their kinds: of one kind are those whose tensors have the same names, types and shapes."""
    held: list[list[_Tensor]] = [[] for _ in range(count)]
    for tensor in tensors:
        match = _LAYER.fullmatch(tensor.name)
        if match and int(match[1]) < count:
            held[int(match[1])].append(_Tensor(match[2], tensor.type, tensor.shape, tensor.nbytes))
    names: dict[tuple[_Tensor, ...], str] = {}
    taken: set[str] = set()
    found = []
    for layer in held:
        key = tuple(sorted(layer, key=lambda tensor: tensor.name))
        if key not in names:
            base = _base(layer)
            number = sum(1 for name in taken if name.partition("-")[0] == base)
            names[key] = base if not number else f"{base}-{number + 1}"
            taken.add(names[key])
        linear = names[key].startswith("linear")
        state = _state_bytes(layer) if linear else 0
        found.append(Layer(names[key], sum(t.nbytes for t in layer), 0 if linear else kv_row_bytes, state))
    return tuple(found)


def _base(layer: list[_Tensor]) -> str:
    names = [tensor.name for tensor in layer]
    kind = "linear" if any(_LINEAR.search(name) for name in names) else "attention"
    return f"{kind}+experts" if any(_EXPERTS.search(name) for name in names) else kind


def _state_bytes(layer: list[_Tensor]) -> int:
    """An upper bound of a recurrent layer's f32 state: a square for each output head, and the convolution's rows."""
    heads = [max(tensor.shape) for tensor in layer if tensor.name.endswith(("A_log", "ssm_a"))]
    norms = [
        max(tensor.shape) for tensor in layer if tensor.name.endswith(("linear_attn.norm.weight", "ssm_norm.weight"))
    ]
    convolutions = [tensor for tensor in layer if "conv1d" in tensor.name and len(tensor.shape) > 1]
    state = heads[0] * norms[0] ** 2 * 4 if heads and norms else 0
    return state + sum(4 * max(c.shape) * min(size for size in c.shape if size > 1) for c in convolutions)


def _ends(tensors: Iterable[_Tensor]) -> tuple[int, int]:
    """Bytes of the embeddings, and of norm and head; a tied matrix counts for each of its two uses."""
    sizes = {tensor.name: tensor.nbytes for tensor in tensors}

    def size(*names: str) -> int:
        return next((nbytes for name, nbytes in sizes.items() if name.endswith(names)), 0)

    embed = size(EMBEDDINGS, "embed_tokens.weight")
    output = sizes.get(OUTPUT, 0) or sizes.get("lm_head.weight", 0) or embed
    return embed, output + size(OUTPUT_NORM, "model.norm.weight", "language_model.norm.weight")
