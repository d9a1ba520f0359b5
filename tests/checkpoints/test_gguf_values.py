"""Metadata values: encoding and decoding, typed access, slices of arrays."""

from __future__ import annotations

import pytest

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.gguf_values import Field, GgufScalar, Metadata, ValueType, array_field, scalar_field

SCALARS: list[tuple[ValueType, GgufScalar]] = [
    (ValueType.UINT8, 255),
    (ValueType.INT8, -128),
    (ValueType.UINT16, 65535),
    (ValueType.INT16, -32768),
    (ValueType.UINT32, 2**32 - 1),
    (ValueType.INT32, -(2**31)),
    (ValueType.FLOAT32, 0.5),
    (ValueType.BOOL, True),
    (ValueType.STRING, "größer 漢"),
    (ValueType.UINT64, 2**64 - 1),
    (ValueType.INT64, -(2**63)),
    (ValueType.FLOAT64, 0.1),
]


@pytest.mark.parametrize(("kind", "value"), SCALARS, ids=lambda value: str(value))
def test_values_come_back(kind: ValueType, value: GgufScalar) -> None:
    assert scalar_field(kind, value).decode() == value
    assert array_field(kind, [value, value]).decode() == [value, value]
    assert array_field(kind, []).decode() == []


def test_take_picks_items_of_an_array() -> None:
    field = array_field(ValueType.UINT32, [10, 11, 12, 13]).take([1, 2, 2])
    assert field.decode() == [11, 12, 12]
    assert field.count == 3


def test_typed_access() -> None:
    metadata = Metadata(
        "file.gguf",
        {
            "number": scalar_field(ValueType.UINT32, 7),
            "flag": scalar_field(ValueType.BOOL, True),
            "text": scalar_field(ValueType.STRING, "x"),
            "many": array_field(ValueType.INT32, [1, 2]),
        },
    )
    assert metadata.integer("number") == 7
    assert metadata.integer("absent", 3) == 3
    assert metadata.text("text") == "x"
    assert metadata.text("absent", "y") == "y"
    assert metadata.array("many") == [1, 2]
    assert list(metadata) == ["number", "flag", "text", "many"]
    assert len(metadata) == 4
    with pytest.raises(CheckpointError, match=r"file\.gguf: flag should be int and is bool"):
        metadata.integer("flag")
    with pytest.raises(CheckpointError, match=r"file\.gguf: text should be int and is str 'x'"):
        metadata.integer("text")
    with pytest.raises(CheckpointError, match=r"file\.gguf: the metadata has no absent"):
        metadata.integer("absent")
    with pytest.raises(CheckpointError, match="number should be an array and is int"):
        metadata.array("number")
    with pytest.raises(CheckpointError, match="absent should be an array and is missing"):
        metadata.array("absent")
    with pytest.raises(KeyError):
        metadata["absent"]


def test_text_that_is_not_utf8_is_named() -> None:
    raw = (1).to_bytes(8, "little") + b"\xff"
    field = Field(ValueType.STRING, memoryview(raw), ValueType.STRING, 1)
    with pytest.raises(CheckpointError, match=r"file\.gguf: key: metadata text is not UTF-8"):
        Metadata("file.gguf", {"key": field})["key"]
