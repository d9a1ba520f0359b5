"""A list of a checkpoint's digests: made once where the whole is, and what parts of it are held against elsewhere.

Web servers give no digests of ranges. This is a JSON file that somebody who has the whole checkpoint makes and gives
to those who fetch parts: SHA-256 of every header, of every tensor and of its sample, and of every file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch import gguf_parts, safetensors_parts
from ropeway.checkpoints.fetch.assemble import Copy
from ropeway.checkpoints.fetch.offer import Offer
from ropeway.checkpoints.fetch.reader import Reader
from ropeway.checkpoints.fetch.safetensors_parts import Head
from ropeway.checkpoints.fetch.source import SourceError
from ropeway.checkpoints.gguf_file import TensorInfo, parse
from ropeway.checkpoints.safetensors_file import TensorEntry

_FORMAT: Final = 2
"""1 had no samples of tensors, which each part of a checkpoint has."""
MAX_LIST_BYTES: Final = 256 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")

Piece = tuple[int, int]
"""Start and bytes of a range of a file."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file's digests, as a voucher (assemble.py)."""

    name: str
    nbytes: int
    pieces: Mapping[Piece, str]

    def digest(self, start: int, nbytes: int) -> str | None:
        """SHA-256 hex of a piece. Raises SourceError for one that is not listed: it is then another file's list."""
        found = self.pieces.get((start, nbytes))
        if found is None:
            raise SourceError(
                f"the list of digests has no bytes {start} to {start + nbytes} of {self.name}", lasting=True
            )
        return found


@dataclass(frozen=True, slots=True)
class Digests:
    """The list: files by name."""

    files: Mapping[str, ListedFile]

    def encode(self) -> str:
        """As JSON."""
        files = {
            name: {"bytes": file.nbytes, "pieces": [[*piece, sha256] for piece, sha256 in sorted(file.pieces.items())]}
            for name, file in self.files.items()
        }
        return json.dumps({"format": _FORMAT, "files": files}, sort_keys=True)

    @classmethod
    def read(cls, path: Path) -> Digests:
        """The list in a file. Raises CheckpointError."""
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_LIST_BYTES + 1)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
        try:
            value = json.loads(raw)
            if value["format"] != _FORMAT or len(raw) > MAX_LIST_BYTES:
                raise ValueError("another format: make it again with ropeway digests")
            return cls({name: _listed(name, entry) for name, entry in value["files"].items()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{path}: is not a list of digests ({error})") from None

    def for_offer(self, offer: Offer) -> dict[str, ListedFile]:
        """The vouchers of an offer's files. Raises CheckpointError where the list is one of another checkpoint."""
        for name, sources in offer.files.items():
            listed = self.files.get(name)
            if listed is None:
                raise CheckpointError(f"{offer.text}: the list of digests does not have {name}")
            size = sources[0].facts.nbytes
            if listed.nbytes != size:
                raise CheckpointError(
                    f"{offer.text}: {name} has {size} bytes, the list of digests says {listed.nbytes}"
                )
        return {name: self.files[name] for name in offer.files}


def make_digests(offer: Offer) -> Digests:
    """Read a whole checkpoint of this machine and list it. Raises CheckpointError."""
    readers = {name: Reader(sources) for name, sources in offer.files.items()}
    heads = {
        name: Head.parse(safetensors_parts.read_header(readers[name]), name, readers[name].facts.nbytes)
        for name in offer.weights
    }
    samples = safetensors_parts.samples_of(heads)
    files = {}
    for name, reader in readers.items():
        size = reader.facts.nbytes
        if name in heads:
            pieces = list(_pieces(heads[name].start, heads[name].tensors.values(), samples[name]))
        elif name.endswith(".gguf"):
            gguf = parse(memoryview(gguf_parts.read_header(reader)), Path(name), size)
            pieces = list(_pieces(gguf.header_bytes, gguf.tensors.values(), gguf_parts.samples_of(gguf)))
        else:
            pieces = []
        wanted = dict.fromkeys([*pieces, (0, size)])
        files[name] = ListedFile(name, size, {piece: _digest(reader, *piece) for piece in wanted})
    return Digests(files)


def _pieces(start: int, tensors: Iterable[TensorInfo | TensorEntry], samples: Iterable[Copy]) -> Iterator[Piece]:
    """The header, each tensor, and the samples."""
    yield 0, start
    yield from ((tensor.offset, tensor.nbytes) for tensor in tensors if tensor.nbytes)
    yield from ((copy.start, copy.nbytes) for copy in samples)


def _digest(reader: Reader, start: int, nbytes: int) -> str:
    digest = hashlib.sha256()
    reader.read(start, nbytes, digest.update)
    return digest.hexdigest()


def _listed(name: str, entry: Mapping[str, Any]) -> ListedFile:
    nbytes, pieces = entry["bytes"], {}
    for start, count, sha256 in entry["pieces"]:
        if type(start) is not int or type(count) is not int or not 0 <= start < start + count <= nbytes:
            raise ValueError(f"a piece of {name}")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise ValueError(f"a digest of {name}")
        pieces[start, count] = sha256
    return ListedFile(name, nbytes, pieces)
