"""A safetensors file's header, parsed over a memory map; tensors stay in the file until someone reads them.

Every length and offset is judged against the file's size before memory is made. The package `safetensors` is not
needed. Format: https://github.com/huggingface/safetensors, 8 bytes of header length, the header as JSON, the data.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any, Final

from ropeway.checkpoints.budget import Lease
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.ranges import Ranges
from ropeway.checkpoints.origin import held_of, require_held, require_sample
from ropeway.checkpoints.samples import Sample

MAX_HEADER_BYTES: Final = 100 << 20
"""As the reference implementation."""
_METADATA = "__metadata__"


class Dtype(Enum):
    """Dtypes of tensors, as the header spells them, with the bytes of one value."""

    F64 = ("F64", 8)
    F32 = ("F32", 4)
    F16 = ("F16", 2)
    BF16 = ("BF16", 2)
    F8_E4M3 = ("F8_E4M3", 1)
    F8_E5M2 = ("F8_E5M2", 1)
    I64 = ("I64", 8)
    I32 = ("I32", 4)
    I16 = ("I16", 2)
    I8 = ("I8", 1)
    U64 = ("U64", 8)
    U32 = ("U32", 4)
    U16 = ("U16", 2)
    U8 = ("U8", 1)
    BOOL = ("BOOL", 1)

    def __init__(self, label: str, itemsize: int) -> None:
        self.label = label
        self.itemsize = itemsize


_DTYPES: Final = {dtype.label: dtype for dtype in Dtype}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies: `offset` from the start of the file, in bytes; `shape` with the rows first."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """An open file. The mapping is private and may be written to without the file changing (copy on write).

    `held`: the bytes that are here, of a copy that was fetched, which stays in the cache for as long as this object;
    else None.
    """

    path: Path
    data: memoryview
    tensors: dict[str, TensorEntry]
    held: Ranges | None = None
    lease: Lease | None = None

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Map and parse `path`. Raises CheckpointError for anything that is not a whole, sane safetensors file."""
        try:
            with path.open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except ValueError:
            raise CheckpointError(f"{path}: the file is empty") from None
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
        try:
            held = held_of(path)
            return cls(path, data, parse_header(data), held, None if held is None else Lease(path))
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None

    def tensor_bytes(self, name: str) -> memoryview:
        """The bytes of one tensor, as a view of the map. Raises CheckpointError for one that was not fetched."""
        entry = self.tensors[name]
        require_held(self.path, self.held, entry.offset, entry.offset + entry.nbytes, f"tensor {name}")
        return self.data[entry.offset : entry.offset + entry.nbytes]

    def sample_bytes(self, sample: Sample) -> memoryview:
        """The bytes of a sample of one of its tensors. Raises CheckpointError where a partial copy lacks them."""
        start = self.tensors[sample.name].offset + sample.start
        require_sample(self.path, self.held, start, start + sample.nbytes, sample.name)
        return self.data[start : start + sample.nbytes]


def parse_header(data: memoryview, nbytes: int | None = None) -> dict[str, TensorEntry]:
    """The tensors of a whole file's bytes, or of the header in front of a file of `nbytes`.

    Raises CheckpointError, and nothing else.
    """
    size = len(data) if nbytes is None else nbytes
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > MAX_HEADER_BYTES:
        raise CheckpointError("this is not a safetensors file (its header's length makes no sense)")
    start = 8 + length
    if start > len(data):
        raise CheckpointError(f"the file is cut off: its header ends at byte {start}, the file at {len(data)}")
    try:
        header = json.loads(bytes(data[8:start]))
    except (ValueError, RecursionError):
        raise CheckpointError("this is not a safetensors file (its header is not JSON)") from None
    if not isinstance(header, dict):
        raise CheckpointError("the header is not an object")
    return {name: _entry(name, value, start, size) for name, value in header.items() if name != _METADATA}


def _entry(name: str, value: Any, start: int, size: int) -> TensorEntry:
    if not isinstance(value, dict):
        raise CheckpointError(f"tensor {name}: its entry is not an object")
    dtype = _DTYPES.get(str(value.get("dtype")))
    if dtype is None:
        raise CheckpointError(f"tensor {name}: its dtype {value.get('dtype')!r} is not known")
    shape: Any = value.get("shape")
    offsets: Any = value.get("data_offsets")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise CheckpointError(f"tensor {name}: its shape or its offsets make no sense")
    first, end = offsets
    nbytes = prod(shape) * dtype.itemsize
    if end - first != nbytes:
        raise CheckpointError(f"tensor {name}: {end - first} bytes are set aside for it, its shape needs {nbytes}")
    if start + end > size:
        raise CheckpointError(f"the file is cut off: tensor {name} ends at byte {start + end}, the file at {size}")
    return TensorEntry(name, dtype, tuple(shape), start + first, nbytes)


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
