"""A GGUF file's header, parsed over a memory map; tensors stay in the file until someone reads them.

Every count, length and offset is judged against the file's size before memory is made. The package `gguf` has a
reader too, but it takes seconds for a large vocabulary. Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from ropeway.checkpoints.budget import Lease
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.ranges import Ranges
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_values import SIZES, Field, Metadata, ValueType
from ropeway.checkpoints.origin import held_of, require_held, require_sample
from ropeway.checkpoints.samples import Sample, choose_samples

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_KEY_BYTES = 65535
MAX_NAME_BYTES = 63
"""ggml's GGML_MAX_NAME without the final zero."""
MAX_DIMENSIONS = 4
_SMALLEST_FIELD = 8 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 8 + 4 + 8


class HeaderCut(CheckpointError):
    """The bytes at hand end inside the header, though the file goes on: `needed` bytes at least are wanted."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"the header needs {needed} bytes at least")
        self.needed = needed


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: `shape` in GGUF order (row length first), `offset` from the start of the file, in bytes."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An open GGUF file. The mapping lives as long as this object or any view taken from it.

    `header_bytes`: where the first tensor may start. `held`: the bytes that are here, of a copy that was fetched, which
    stays in the cache for as long as this object; else None.
    """

    path: Path
    version: int
    alignment: int
    data: memoryview
    metadata: Metadata
    tensors: dict[str, TensorInfo]
    header_bytes: int
    held: Ranges | None = None
    lease: Lease | None = None

    @classmethod
    def open(cls, path: str | Path) -> GgufFile:
        """Map and parse `path`. Raises CheckpointError for anything that is not a whole, sane GGUF file."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:
            raise CheckpointError(f"{path}: the file is empty") from None
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
        held = held_of(path)
        return replace(parse(data, path), held=held, lease=None if held is None else Lease(path))

    @property
    def architecture(self) -> str:
        """`general.architecture`, such as "llama"."""
        return self.metadata.text("general.architecture")

    def tensor_bytes(self, name: str) -> memoryview:
        """The bytes of one tensor, as a view of the map.

        Raises CheckpointError when there is none of that name, or when it was not fetched into a partial copy.
        """
        info = self.tensors.get(name)
        if info is None:
            raise CheckpointError(f"{self.path}: there is no tensor {name}")
        require_held(self.path, self.held, info.offset, info.offset + info.nbytes, f"tensor {name}")
        return self.data[info.offset : info.offset + info.nbytes]

    def samples(self) -> list[Sample]:
        """The samples of its weights that tell it from its fine-tunes."""
        return choose_samples((info.name, info.nbytes) for info in self.tensors.values())

    def sample_bytes(self, sample: Sample) -> memoryview:
        """The bytes of one. Raises CheckpointError where a partial copy lacks them."""
        start = self.tensors[sample.name].offset + sample.start
        require_sample(self.path, self.held, start, start + sample.nbytes, sample.name)
        return self.data[start : start + sample.nbytes]


def parse(data: memoryview, path: Path, nbytes: int | None = None) -> GgufFile:
    """Parse a whole file's bytes, or the first bytes of a file of `nbytes`; `path` is for messages.

    Raises HeaderCut where the first bytes are too few, CheckpointError for all else, and nothing else.
    """
    try:
        return _parse(data, path, len(data) if nbytes is None else nbytes)
    except HeaderCut:
        raise
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _parse(data: memoryview, path: Path, nbytes: int) -> GgufFile:
    cursor = _Cursor(data, nbytes)
    if data[:4] != MAGIC:
        raise CheckpointError("this is not a GGUF file (it does not start with the letters GGUF)")
    cursor.at = 4
    version = cursor.u32("version")
    if version not in (2, 3):
        what = "big-endian" if version in (2 << 24, 3 << 24) else f"version {version}"
        raise CheckpointError(f"this GGUF file is {what}; versions 2 and 3, little-endian, can be read")
    tensor_count = cursor.count("tensor count")
    field_count = cursor.count("metadata count")
    cursor.fits(field_count, _SMALLEST_FIELD, "metadata fields")
    fields = _read_fields(cursor, field_count)
    cursor.fits(tensor_count, _SMALLEST_TENSOR, "tensors")
    metadata = Metadata(str(path), fields)
    alignment = _alignment(fields)
    tensors = _read_tensors(cursor, tensor_count, alignment)
    header_bytes = -(-cursor.at // alignment) * alignment
    return GgufFile(path, version, alignment, data, metadata, tensors, header_bytes)


class _Cursor:
    """A place in the file; every step is judged against the end of the file, then of the bytes at hand."""

    __slots__ = ("at", "data", "size")

    def __init__(self, data: memoryview, size: int) -> None:
        self.data = data
        self.size = size
        self.at = 0

    def take(self, nbytes: int, what: str) -> int:
        """Step over `nbytes`; gives where they start."""
        start = self.at
        if nbytes > self.size - start:
            raise CheckpointError(f"the file ends inside its header: {what} at byte {start} needs {nbytes} bytes")
        if nbytes > len(self.data) - start:
            raise HeaderCut(start + nbytes)
        self.at = start + nbytes
        return start

    def u32(self, what: str) -> int:
        return int.from_bytes(self.data[(at := self.take(4, what)) : at + 4], "little")

    def count(self, what: str) -> int:
        return int.from_bytes(self.data[(at := self.take(8, what)) : at + 8], "little")

    def fits(self, count: int, smallest: int, what: str) -> None:
        """Refuse a count that the rest of the file cannot hold, before anything is made of it."""
        if count * smallest > self.size - self.at:
            raise CheckpointError(f"the header counts {count} {what}, more than the file can hold")

    def text(self, limit: int, what: str) -> str:
        length = self.count(what)
        if length > limit:
            raise CheckpointError(f"{what} at byte {self.at} has {length} bytes, the limit is {limit}")
        start = self.take(length, what)
        try:
            return str(self.data[start : start + length], "utf-8")
        except UnicodeDecodeError:
            raise CheckpointError(f"{what} at byte {start} is not UTF-8") from None

    def value_type(self, what: str) -> ValueType:
        number = self.u32(what)
        try:
            return ValueType(number)
        except ValueError:
            raise CheckpointError(f"{what} has the unknown value type {number}") from None

    def skip_strings(self, count: int, what: str) -> None:
        self.fits(count, 8, f"strings in {what}")
        data, at, end, unpack = self.data, self.at, len(self.data), struct.Struct("<Q").unpack_from
        for left in range(count, 0, -1):
            if at > end - 8:
                self._ended(at + 8 * left, what)
            at += 8 + unpack(data, at)[0]
        if at > end:
            self._ended(at, what)
        self.at = at

    def _ended(self, needed: int, what: str) -> NoReturn:
        if needed > self.size:
            raise CheckpointError(f"the file ends inside its header, in {what}")
        raise HeaderCut(needed)


def _read_fields(cursor: _Cursor, count: int) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for _ in range(count):
        key = cursor.text(MAX_KEY_BYTES, "a metadata key")
        if not key or key in fields:
            raise CheckpointError(f"the metadata key {key!r} is empty or occurs twice")
        kind = item = cursor.value_type(key)
        start, number = cursor.at, 1
        if kind is ValueType.ARRAY:
            item = cursor.value_type(key)
            number = cursor.count(key)
        if item is ValueType.ARRAY:
            raise CheckpointError(f"{key} is an array of arrays, which models do not use")
        if item is ValueType.STRING:
            cursor.skip_strings(number, key)
        else:
            cursor.fits(number, SIZES[item], f"items in {key}")
            cursor.take(number * SIZES[item], key)
        fields[key] = Field(kind, cursor.data[start : cursor.at], item, number)
    return fields


def _alignment(fields: dict[str, Field]) -> int:
    field = fields.get("general.alignment")
    value = DEFAULT_ALIGNMENT if field is None else field.decode()
    if type(value) is not int or value < 8 or value & (value - 1) or value > 1 << 20:
        raise CheckpointError(f"general.alignment is {value!r}, not a power of two from 8 to 1048576")
    return value


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    found: list[TensorInfo] = []
    for _ in range(count):
        name = cursor.text(MAX_NAME_BYTES, "a tensor's name")
        dimensions = cursor.u32(name)
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise CheckpointError(f"tensor {name} has {dimensions} dimensions, allowed are 1 to {MAX_DIMENSIONS}")
        shape = tuple(cursor.count(name) for _ in range(dimensions))
        number = cursor.u32(name)
        offset = cursor.count(name)
        if 0 in shape or max(shape) >= 1 << 63:
            raise CheckpointError(f"tensor {name} has the impossible shape {list(shape)}")
        if offset % alignment:
            raise CheckpointError(f"tensor {name} is at offset {offset}, not a multiple of {alignment}")
        try:
            kind = GgmlType(number)
            nbytes = kind.nbytes(shape)
        except ValueError as error:
            raise CheckpointError(f"tensor {name}: {error}") from None
        found.append(TensorInfo(name, kind, shape, offset, nbytes))
    return _place(found, -(-cursor.at // alignment) * alignment, cursor.size)


def _place(found: list[TensorInfo], start: int, size: int) -> dict[str, TensorInfo]:
    """The tensors with offsets from the start of the file, all inside it and none over another."""
    end_of_last, last = start, "the header"
    for info in sorted(found, key=lambda info: info.offset):
        if start + info.offset < end_of_last:
            raise CheckpointError(f"tensors {last} and {info.name} lie over each other")
        end_of_last, last = start + info.offset + info.nbytes, info.name
    if end_of_last > size:
        raise CheckpointError(f"the file has {size} bytes and needs {end_of_last} (tensor {last}): it is cut short")
    tensors = {
        info.name: TensorInfo(info.name, info.type, info.shape, start + info.offset, info.nbytes) for info in found
    }
    if len(tensors) != len(found):
        raise CheckpointError("a tensor's name occurs twice")
    return tensors
