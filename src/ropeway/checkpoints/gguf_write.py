"""Writing a GGUF file: a header from fields and tensors, then the tensors' bytes, streamed from where they are.

The same input gives the same bytes. Version 3, little-endian, alignment 32; zeros become holes where the file system
has them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import DEFAULT_ALIGNMENT, MAGIC
from ropeway.checkpoints.gguf_values import Field

CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class OutTensor:
    """A tensor to write. `data` is its bytes; None stands for zeros."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    data: memoryview | None

    @property
    def nbytes(self) -> int:
        """Bytes in the file, without padding."""
        return self.type.nbytes(self.shape)


def encode_header(fields: Mapping[str, Field], tensors: Sequence[OutTensor]) -> bytes:
    """The header, padded to where the first tensor starts."""
    parts = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(fields))]
    for key, field in fields.items():
        parts += [_text(key), struct.pack("<I", field.kind), bytes(field.raw)]
    at = 0
    for tensor in tensors:
        dimensions = len(tensor.shape)
        parts += [_text(tensor.name), struct.pack(f"<I{dimensions}QIQ", dimensions, *tensor.shape, tensor.type, at)]
        at = _aligned(at + tensor.nbytes)
    header = b"".join(parts)
    return header.ljust(_aligned(len(header)), b"\0")


def file_bytes(header: bytes, tensors: Iterable[OutTensor]) -> int:
    """Size of the whole file."""
    return len(header) + sum(_aligned(tensor.nbytes) for tensor in tensors)


def write_gguf(file: BinaryIO, header: bytes, tensors: Sequence[OutTensor]) -> None:
    """Write the file from its start. Raises OSError as the file does."""
    file.write(header)
    at = len(header)
    for tensor in tensors:
        if tensor.data is not None:
            file.seek(at)
            for start in range(0, len(tensor.data), CHUNK_BYTES):
                file.write(tensor.data[start : start + CHUNK_BYTES])
        at += _aligned(tensor.nbytes)
    file.truncate(at)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
