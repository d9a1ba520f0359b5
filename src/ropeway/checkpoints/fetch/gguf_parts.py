"""What of a GGUF file a stage needs, as recipes of files to put together. Reads headers, never weights."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Final

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.families import EMBEDDINGS, OUTPUT, OUTPUT_NORM, family_of, layer_count
from ropeway.checkpoints.fetch.assemble import Copy, Literal, Recipe, add_samples
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.reader import Reader
from ropeway.checkpoints.gguf_file import DEFAULT_ALIGNMENT, GgufFile, HeaderCut, parse
from ropeway.checkpoints.slice_plan import Fill
from ropeway.checkpoints.slicing import SliceFile, slice_file

MAX_HEADER_BYTES: Final = 256 << 20
"""A vocabulary of a quarter of a million tokens takes 15 MB."""
_FIRST_BYTES = 16 << 10
_STEP_BYTES = 64 << 10


def read_header(reader: Reader) -> bytes:
    """The file's bytes up to where its tensors start, and hardly more of it is read.

    Raises CheckpointError for what is no GGUF file, and as the reader does.
    """
    data = bytearray()
    wanted = _FIRST_BYTES
    name = Path(reader.facts.name)
    while True:
        wanted = min(wanted, reader.facts.nbytes)
        if wanted > MAX_HEADER_BYTES:
            raise CheckpointError(f"{name}: its header has more than {MAX_HEADER_BYTES >> 20} MiB, which is no model's")
        reader.read(len(data), wanted - len(data), data.extend)
        view = memoryview(bytes(data))
        try:
            gguf = parse(view, name, reader.facts.nbytes)
        except HeaderCut as cut:
            wanted = max(cut.needed, len(data) + max(_STEP_BYTES, len(data) // 8))
            continue
        if gguf.header_bytes <= len(data):
            return bytes(view[: gguf.header_bytes])
        wanted = gguf.header_bytes


def copy_recipe(gguf: GgufFile, nbytes: int, tensors: Iterable[str]) -> Recipe:
    """A partial copy of the file of `nbytes`: its header, `tensors` where they lie in it, and samples."""
    wanted = [gguf.tensors[name] for name in set(tensors)]
    copies = [Copy(info.offset, info.offset, info.nbytes, info.name) for info in wanted]
    header = Copy(0, 0, gguf.header_bytes, "the header")
    return Recipe(nbytes, (header, *add_samples(copies, samples_of(gguf))))


def samples_of(gguf: GgufFile) -> list[Copy]:
    """The samples of the weights that the identity takes in."""
    found = []
    for sample in gguf.samples():
        start = gguf.tensors[sample.name].offset + sample.start
        found.append(Copy(start, start, sample.nbytes, f"the sample of {sample.name}"))
    return found


def tensors_of(gguf: GgufFile, need: Need) -> list[str]:
    """The tensors that an engine other than llama.cpp reads for a stage. Raises CheckpointError."""
    family = family_of(gguf)
    layers = {f"blk.{layer}." for layer in range(need.first, need.end)}
    names = [name for name in gguf.tensors if name[: name.find(".", 4) + 1] in layers or name in family.shared]
    tied = OUTPUT not in gguf.tensors
    if need.embed or (need.head and tied):
        names.append(EMBEDDINGS)
    if need.head:
        names += [OUTPUT_NORM] if tied else [OUTPUT_NORM, OUTPUT]
    return names


def slices_of(gguf: GgufFile, need: Need) -> list[SliceFile]:
    """The slices that llama.cpp loads for a stage, as `LlamaCppEngine.load` asks for them. Raises CheckpointError."""
    layers = layer_count(gguf)
    fused = need.head and need.end == layers and need.first < need.end
    found = [slice_file(gguf, need.first, need.end, fused)] if need.first < need.end else []
    if need.head and not fused:
        found.append(slice_file(gguf, layers, layers, True))
    return found


def slice_recipe(gguf: GgufFile, piece: SliceFile) -> Recipe:
    """A slice put together from the checkpoint's file: the same bytes as when it is cut from a whole local file."""
    parts: list[Literal | Copy] = [Literal(0, piece.header)]
    at = len(piece.header)
    for tensor in piece.plan.tensors:
        nbytes = tensor.type.nbytes(tensor.shape)
        if tensor.fill is Fill.COPY:
            parts.append(Copy(at, gguf.tensors[tensor.source].offset, nbytes, tensor.source))
        elif tensor.fill is Fill.ONES:
            parts.append(Literal(at, struct.pack("<f", 1.0) * prod(tensor.shape)))
        at += -(-nbytes // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
    assert at == piece.nbytes
    return Recipe(piece.nbytes, tuple(parts))
