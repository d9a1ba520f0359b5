"""A checkpoint, whatever its format: where it lies, and the facts that a layout needs. Reads headers, never weights."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Protocol

from ropeway.checkpoints.demo import DEMO, resolve_model
from ropeway.checkpoints.families import kv_row_bytes, layer_count
from ropeway.checkpoints.fetch.spec import is_remote
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.identity import checkpoint_identity
from ropeway.types import Boundary, RowDtype


class Format(Enum):
    """How a checkpoint lies on disk: one GGUF file, or a directory with config.json and safetensors files."""

    GGUF = "GGUF"
    SAFETENSORS = "safetensors"


class Checkpoint(Protocol):
    """What a placement asks of a checkpoint."""

    @property
    def path(self) -> Path: ...
    @property
    def format(self) -> Format: ...
    @property
    def layers(self) -> int: ...
    @property
    def boundary(self) -> Boundary:
        """What crosses between stages, unless another row dtype is asked for."""
        ...

    @property
    def kv_row_bytes(self) -> int:
        """Bytes of one position's keys and values in one layer, in 16 bits (the widest, where layers differ)."""
        ...

    @property
    def reads_tokens(self) -> bool:
        """Some layer reads token ids, which then go into the plans."""
        ...

    def identity(self, verify_weights: bool = False) -> str:
        """SHA-256 hex of the checkpoint's identity (wire.md 4)."""
        ...


class GgufCheckpoint:
    """One GGUF file. Raises CheckpointError where it cannot be read."""

    format = Format.GGUF
    reads_tokens = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._gguf = gguf = GgufFile.open(path)
        self.layers = layer_count(gguf)
        self.boundary = Boundary(gguf.metadata.integer(f"{gguf.architecture}.embedding_length"), 1, RowDtype.F32)

    @property
    def kv_row_bytes(self) -> int:
        """As `Checkpoint`."""
        return kv_row_bytes(self._gguf)

    def identity(self, verify_weights: bool = False) -> str:
        """As `Checkpoint`."""
        return checkpoint_identity(self._gguf, verify_weights=verify_weights)


def resolve_checkpoint(model: str) -> Path:
    """The GGUF file or the directory that `model` names: a path, "demo", hf:ORG/NAME or a URL, fetched if need be.

    Raises CheckpointError when there is no such thing or the fetch fails, ValueError for a malformed name.
    """
    if is_remote(model):
        from ropeway.checkpoints.fetch.remote import fetch_whole

        return fetch_whole(model)
    path = Path(model).expanduser()
    if model != DEMO and path.is_dir():
        return path
    return resolve_model(model)


def locate_checkpoint(model: str) -> Path:
    """As `resolve_checkpoint`, but of a model that is elsewhere only its headers and small files are fetched."""
    if is_remote(model):
        from ropeway.checkpoints.fetch.remote import fetch_header

        return fetch_header(model)
    return resolve_checkpoint(model)


def format_of(path: Path) -> Format:
    """Which format lies at `path`."""
    return Format.SAFETENSORS if path.is_dir() else Format.GGUF


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at `path`. Raises CheckpointError where it is none."""
    if format_of(path) is Format.SAFETENSORS:
        from ropeway.checkpoints.directory import DirectoryCheckpoint

        return DirectoryCheckpoint(path)
    return GgufCheckpoint(path)
