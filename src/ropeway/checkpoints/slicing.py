"""Cutting a GGUF by layers: writes what `slice_plan` says into the cache, once for a content and a range."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from ropeway.checkpoints.budget import make_room, touch
from ropeway.checkpoints.cache import cache_directory, cached_file
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.gguf_write import OutTensor, encode_header, file_bytes, write_gguf
from ropeway.checkpoints.identity import content_key
from ropeway.checkpoints.slice_plan import Fill, PlannedTensor, SliceKind, SlicePlan, plan_slice

SLICES = "slices"
"""Where slices lie inside the cache."""

_NAME = re.compile(r"[0-9a-f]{32}-(stage|last|tail|head)-(\d+)-(\d+)\.gguf")


@dataclass(frozen=True, slots=True)
class CachedSlice:
    """A slice that lies in the cache; `disk_bytes` is the room it takes, which zeros do not."""

    path: Path
    kind: SliceKind
    first: int
    end: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class SliceFile:
    """A slice as a file: its name in the cache, its header and its size; its tensors follow the header in order."""

    plan: SlicePlan
    name: str
    header: bytes
    nbytes: int


def slice_file(gguf: GgufFile, first: int, end: int, head: bool) -> SliceFile:
    """The slice of layers first..end, with the head or without; the head alone where first == end.

    Raises CheckpointError as `plan_slice` does.
    """
    plan = plan_slice(gguf, first, end, head)
    tensors = [OutTensor(tensor.name, tensor.type, tensor.shape, None) for tensor in plan.tensors]
    header = encode_header(plan.fields, tensors)
    name = f"{_key(gguf, plan, header)}-{plan.kind.value}-{first}-{end}.gguf"
    return SliceFile(plan, name, header, file_bytes(header, tensors))


def slice_stage(path: str | Path, first: int, end: int, head: bool, cache_dir: Path | None = None) -> Path:
    """The stage's own GGUF in the cache, written if it is not there yet.

    Layers first..end, with the head or without; the head alone where first == end == the model's layers. Raises
    CheckpointError as `plan_slice` does, or when the file cannot be read or stored, or when layers of a partial copy
    were not fetched.
    """
    gguf = GgufFile.open(path)
    piece = slice_file(gguf, first, end, head)
    cache = cache_dir or cache_directory()

    def write(file: BinaryIO) -> None:
        tensors = [OutTensor(t.name, t.type, t.shape, planned_bytes(gguf, t)) for t in piece.plan.tensors]
        make_room(cache, sum(tensor.nbytes for tensor in tensors if tensor.data is not None))
        write_gguf(file, piece.header, tensors)

    return touch(cached_file(cache / SLICES / piece.name, piece.nbytes, write))


def cached_slices(cache_dir: Path | None = None) -> list[CachedSlice]:
    """The complete slices in the cache, by name."""
    directory = (cache_dir or cache_directory()) / SLICES
    found = []
    for path in sorted(directory.glob("*.gguf")):
        if match := _NAME.fullmatch(path.name):
            kind, first, end = match.groups()
            found.append(CachedSlice(path, SliceKind(kind), int(first), int(end), path.stat().st_blocks * 512))
    return found


def _key(gguf: GgufFile, plan: SlicePlan, header: bytes) -> str:
    """32 hex digits that change with the content that is copied and with the recipe."""
    sources = [gguf.tensors[tensor.source] for tensor in plan.tensors if tensor.fill is Fill.COPY]
    recipe = repr([(tensor.name, tensor.fill.value, tensor.source) for tensor in plan.tensors])
    digest = hashlib.sha256(content_key(gguf, sources).encode() + recipe.encode() + header)
    return digest.hexdigest()[:32]


def planned_bytes(gguf: GgufFile, tensor: PlannedTensor) -> memoryview | None:
    """What a planned tensor holds; None for zeros. Raises CheckpointError for a tensor that was not fetched."""
    match tensor.fill:
        case Fill.COPY:
            return gguf.tensor_bytes(tensor.source)
        case Fill.ONES:
            return memoryview(struct.pack("<f", 1.0) * prod(tensor.shape))
        case Fill.ZEROS:
            return None
