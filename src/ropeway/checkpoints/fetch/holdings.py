"""What of a checkpoint's file is on this machine already: whole files, partial copies and slices, as one source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.gguf_parts import slice_recipe
from ropeway.checkpoints.fetch.local import Extent, LocalSource
from ropeway.checkpoints.fetch.source import FileFacts
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.origin import NOTE, origin_of
from ropeway.checkpoints.slice_plan import SliceKind
from ropeway.checkpoints.slicing import CachedSlice, cached_slices, slice_file

FETCHED: Final = "fetched"
"""Where partial and whole copies lie inside the cache: fetched/KEY/FORM/FILE."""


def held_here(cache: Path, facts: FileFacts) -> LocalSource:
    """The bytes of a file that the cache holds; maybe none."""
    extents: list[Extent] = []
    gguf: GgufFile | None = None
    for path, known, pieces in copies(cache):
        if (known.nbytes, known.tag) == (facts.nbytes, facts.tag):
            extents += pieces
            if gguf is None and path.suffix == ".gguf":
                with suppress(CheckpointError):
                    gguf = GgufFile.open(path)
    if gguf is not None:
        extents += slices(cache, gguf)
    return LocalSource(facts, extents)


def copies(cache: Path) -> Iterator[tuple[Path, FileFacts, list[Extent]]]:
    """Every complete file that was fetched as a copy, whole or in part, and the bytes that it has."""
    for note in sorted((cache / FETCHED).glob(f"*/*/{NOTE}")):
        try:
            origin = origin_of(note.parent)
        except CheckpointError:
            continue
        for name, held in ({} if origin is None else origin.files).items():
            path = note.parent / name
            if _size(path) == held.nbytes:
                pieces = [Extent(start, end - start, path, start) for start, end in held.held]
                yield path, FileFacts(name, held.nbytes, held.tag), pieces


def slices(cache: Path, gguf: GgufFile) -> Iterator[Extent]:
    """The bytes of a GGUF that slices in the cache repeat."""
    for kept in cached_slices(cache):
        try:
            piece = slice_file(gguf, kept.first, kept.end, kept.kind in (SliceKind.TAIL, SliceKind.HEAD))
        except CheckpointError:
            continue
        if _whole(kept, piece.name, piece.nbytes):
            for copy in slice_recipe(gguf, piece).copies:
                yield Extent(copy.start, copy.nbytes, kept.path, copy.at)


def _whole(kept: CachedSlice, name: str, nbytes: int) -> bool:
    return kept.path.name == name and _size(kept.path) == nbytes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
