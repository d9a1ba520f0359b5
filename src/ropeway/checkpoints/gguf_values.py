"""GGUF metadata values: their types, and decoding them from a file's bytes on demand.

Source: ggml's docs/gguf.md, versions 2 and 3, little-endian. Knows nothing of models.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from ropeway.checkpoints.errors import CheckpointError

GgufScalar = bool | int | float | str
GgufValue = GgufScalar | list[GgufScalar]
Number = TypeVar("Number", bool, int, float, str)


class ValueType(IntEnum):
    """A metadata value's type; the numbers are those of GGUF files."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


FORMATS = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}
"""`struct` codes of the types of fixed size."""

SIZES = {kind: struct.calcsize("<" + code) for kind, code in FORMATS.items()}
"""Bytes of the types of fixed size."""


@dataclass(frozen=True, slots=True)
class Field:
    """One metadata value as the file has it: `raw` is its encoding without the type number in front.

    For an array `item` is the type of its items and `count` their number; else both say the value itself.
    """

    kind: ValueType
    raw: memoryview
    item: ValueType
    count: int

    def decode(self) -> GgufValue:
        """The value; an array gives a new list each time. Raises CheckpointError for text that is not UTF-8."""
        items = self.raw[12:] if self.kind is ValueType.ARRAY else self.raw
        if self.item is ValueType.STRING:
            values: list[GgufScalar] = list(_strings(items, self.count))
        else:
            values = list(struct.unpack_from(f"<{self.count}{FORMATS[self.item]}", items))
        return values if self.kind is ValueType.ARRAY else values[0]

    def take(self, indices: Sequence[int]) -> Field:
        """An array field with the items at `indices` of this one, whose items have a fixed size."""
        assert self.kind is ValueType.ARRAY
        assert self.item is not ValueType.STRING
        size = SIZES[self.item]
        items = b"".join(self.raw[12 + index * size : 12 + (index + 1) * size] for index in indices)
        raw = struct.pack("<IQ", self.item, len(indices)) + items
        return Field(ValueType.ARRAY, memoryview(raw), self.item, len(indices))


def _strings(items: memoryview, count: int) -> Iterator[str]:
    at = 0
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", items, at)
        at += 8
        try:
            yield str(items[at : at + length], "utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"metadata text is not UTF-8: {error}") from None
        at += length


def scalar_field(kind: ValueType, value: GgufScalar) -> Field:
    """The field of a single value. Raises struct.error when the value does not fit the type."""
    return Field(kind, memoryview(_encode(kind, [value])), kind, 1)


def array_field(item: ValueType, values: list[GgufScalar]) -> Field:
    """The field of an array of `item`s."""
    raw = struct.pack("<IQ", item, len(values)) + _encode(item, values)
    return Field(ValueType.ARRAY, memoryview(raw), item, len(values))


def _encode(kind: ValueType, values: list[GgufScalar]) -> bytes:
    if kind is ValueType.STRING:
        texts = [str(value).encode() for value in values]
        return b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    return struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)


class Metadata(Mapping[str, GgufValue]):
    """A file's metadata by key, each value decoded when it is asked for; `name` is for messages."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, Field]) -> None:
        self.name = name
        self.fields = fields

    def __getitem__(self, key: str) -> GgufValue:
        try:
            return self.fields[key].decode()
        except CheckpointError as error:
            raise CheckpointError(f"{self.name}: {key}: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number. Raises CheckpointError when it is something else, or missing without a default."""
        return self._typed(key, int, default)

    def text(self, key: str, default: str | None = None) -> str:
        """A string. Raises CheckpointError when it is something else, or missing without a default."""
        return self._typed(key, str, default)

    def array(self, key: str) -> list[GgufScalar]:
        """An array as a list. Raises CheckpointError when it is something else or missing."""
        value = self[key] if key in self.fields else None
        if not isinstance(value, list):
            raise CheckpointError(f"{self.name}: {key} should be an array and is {_describe(value)}")
        return value

    def _typed(self, key: str, kind: type[Number], default: Number | None) -> Number:
        if key not in self.fields:
            if default is None:
                raise CheckpointError(f"{self.name}: the metadata has no {key}")
            return default
        value = self[key]
        if type(value) is not kind:
            raise CheckpointError(f"{self.name}: {key} should be {kind.__name__} and is {_describe(value)}")
        return value


def _describe(value: GgufValue | None) -> str:
    return "missing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
