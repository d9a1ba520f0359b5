"""Holding files that are here against digests: a whole file against its source's, pieces against a voucher's."""

from __future__ import annotations

import hashlib
import os
from io import FileIO
from pathlib import Path

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.assemble import Recipe, Voucher
from ropeway.checkpoints.fetch.source import FileFacts, SourceError

_CHUNK_BYTES = 4 << 20


def check_whole(file: FileIO, recipe: Recipe, facts: FileFacts) -> None:
    """Hold a whole file against the digest that its source gives. Raises CheckpointError; the file is empty then."""
    expected = facts.digest
    if recipe.copied() != ((0, recipe.nbytes),) or expected is None:
        return
    digest = hashlib.sha256() if len(expected) == 64 else hashlib.sha1(f"blob {recipe.nbytes}\0".encode())
    file.seek(0)
    while data := file.read(_CHUNK_BYTES):
        digest.update(data)
    if digest.hexdigest() != expected:
        file.truncate(0)
        raise CheckpointError(f"{facts.name}: what was fetched has another digest than the source gives for it")


def pieces_hold(path: Path, recipe: Recipe, voucher: Voucher) -> bool:
    """Whether every piece of a complete file is what the voucher has. Raises CheckpointError where it cannot say."""
    with path.open("rb", buffering=0) as file:
        for copy in recipe.copies:
            digest, at, end = hashlib.sha256(), copy.at, copy.end
            while at < end:
                data = os.pread(file.fileno(), min(_CHUNK_BYTES, end - at), at)
                if not data:
                    return False
                digest.update(data)
                at += len(data)
            try:
                expected = voucher.digest(copy.start, copy.nbytes)
            except SourceError as error:
                raise CheckpointError(f"{copy.name} cannot be checked: {error}") from None
            if expected is not None and expected != digest.hexdigest():
                return False
    return True
