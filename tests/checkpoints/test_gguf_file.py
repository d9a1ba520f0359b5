"""The header parser: against the package `gguf`, on files cut short, on hostile counts and on mutated bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf.gguf_reader import GGUFReader
from hypothesis import given
from hypothesis import strategies as st

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile, parse
from ropeway.checkpoints.gguf_values import ValueType, array_field, scalar_field
from ropeway.checkpoints.gguf_write import OutTensor, encode_header
from tiny_gguf import TinyModel, write_tiny

NOWHERE = Path("model.gguf")
HUGE = 2**63


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def u32_field(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", ValueType.UINT32, value)


def tensor(name: str, shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(
    fields: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    data: int = 0,
    counts: tuple[int, int] | None = None,
    version: int = 3,
) -> bytes:
    """A file made by hand; `counts` are the tensors and fields that its header claims."""
    claimed = counts or (len(tensors), len(fields))
    header = b"GGUF" + struct.pack("<IQQ", version, *claimed) + b"".join(fields) + b"".join(tensors)
    return header.ljust(-(-len(header) // 32) * 32, b"\0") + bytes(data)


def small_file() -> bytes:
    """A valid file with every shape of value and two tensors."""
    fields = {
        "general.architecture": scalar_field(ValueType.STRING, "llama"),
        "general.alignment": scalar_field(ValueType.UINT32, 32),
        "flag": scalar_field(ValueType.BOOL, True),
        "words": array_field(ValueType.STRING, ["a", "", "ccc"]),
        "numbers": array_field(ValueType.INT16, [1, -1]),
    }
    tensors = [
        OutTensor("a", GgmlType.F32, (3, 2), None),
        OutTensor("b", GgmlType.Q4_0, (32, 1), None),
    ]
    header = encode_header(fields, tensors)
    return header + bytes(32 + 18)


def refused(data: bytes, match: str) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        parse(memoryview(data), NOWHERE)
    assert str(caught.value).startswith("model.gguf: ")


@pytest.mark.parametrize("model", [TinyModel(), TinyModel("qwen2", type=GgmlType.Q4_0), TinyModel("qwen3", tied=True)])
def test_reads_what_the_gguf_package_reads(tmp_path: Path, model: TinyModel) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", model)
    ours, theirs = GgufFile.open(path), GGUFReader(path)
    keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
    assert list(ours.metadata) == keys
    for key in keys:
        assert ours.metadata[key] == theirs.fields[key].contents()
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor_ in theirs.tensors:
        info = ours.tensors[tensor_.name]
        assert info.shape == tuple(int(size) for size in tensor_.shape)
        assert (int(info.type), info.offset, info.nbytes) == (
            tensor_.tensor_type,
            tensor_.data_offset,
            tensor_.n_bytes,
        )
        assert bytes(ours.tensor_bytes(info.name)) == np.asarray(tensor_.data).tobytes()
    assert ours.architecture == model.architecture


def test_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    file = GgufFile.open(write_tiny(tmp_path / "tiny.gguf"))
    with pytest.raises(CheckpointError, match=r"tiny\.gguf: there is no tensor blk\.99\.nothing"):
        file.tensor_bytes("blk.99.nothing")


def test_views_outlive_the_file_object(tmp_path: Path) -> None:
    view = GgufFile.open(write_tiny(tmp_path / "tiny.gguf")).tensor_bytes("output_norm.weight")
    assert len(bytes(view)) == 64 * 4


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "cannot be read: No such file"),
        (b"", "the file is empty"),
        (b"GG", "not a GGUF file"),
        (b"PK\x03\x04" + bytes(40), "not a GGUF file"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, content: bytes | None, match: str) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=match):
        GgufFile.open(path)


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        GgufFile.open(tmp_path)


def test_cut_short_anywhere() -> None:
    whole = small_file()
    file = parse(memoryview(whole), NOWHERE)
    assert file.metadata["words"] == ["a", "", "ccc"]
    assert [info.nbytes for info in file.tensors.values()] == [24, 18]
    for size in range(len(whole)):
        with pytest.raises(CheckpointError):
            parse(memoryview(whole[:size]), NOWHERE)


def test_a_file_cut_short_says_how_much_is_missing() -> None:
    refused(gguf(tensors=(tensor("a"),), data=100), "the file has 164 bytes and needs 192 .tensor a.: it is cut short")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (gguf(version=1), "is version 1;"),
        (gguf(version=3 << 24), "is big-endian;"),
        (gguf(counts=(0, HUGE)), "counts 9223372036854775808 metadata fields, more than the file can hold"),
        (gguf(counts=(HUGE, 0)), "counts 9223372036854775808 tensors, more than the file can hold"),
        (gguf((struct.pack("<Q", HUGE) + bytes(64),)), "a metadata key at byte 32 has 9223372036854775808 bytes"),
        (gguf((text("") + bytes(64),)), "'' is empty or occurs twice"),
        (gguf((u32_field("k", 1), u32_field("k", 2))), "'k' is empty or occurs twice"),
        (gguf((struct.pack("<Q", 2) + b"\xff\xfe" + bytes(64),)), "a metadata key at byte 32 is not UTF-8"),
        (gguf((text("k") + struct.pack("<I", 13),)), "k has the unknown value type 13"),
        (gguf((text("k") + struct.pack("<IQ", ValueType.STRING, HUGE),)), "the file ends inside its header, in k"),
        (gguf((text("k") + struct.pack("<IIQ", 9, ValueType.STRING, HUGE),)), "counts .* strings in k, more than"),
        (gguf((text("k") + struct.pack("<IIQ", 9, ValueType.UINT8, HUGE),)), "counts .* items in k, more than"),
        (gguf((text("k") + struct.pack("<IIQ", 9, ValueType.FLOAT64, 9),)), "counts 9 items in k, more than"),
        (gguf((text("k") + struct.pack("<IIQ", 9, ValueType.ARRAY, 1),)), "k is an array of arrays"),
        (
            gguf((text("k") + struct.pack("<IIQQ", 9, ValueType.STRING, 2, HUGE) + bytes(9),)),
            "the file ends inside its header, in k",
        ),
        (gguf((u32_field("general.alignment", 0),)), "general.alignment is 0, not a power of two"),
        (gguf((u32_field("general.alignment", 48),)), "general.alignment is 48, not a power of two"),
        (gguf((u32_field("general.alignment", 1 << 31),)), "general.alignment is 2147483648, not a power of two"),
        (gguf(tensors=(tensor("a" * 64),)), "a tensor's name at byte 32 has 64 bytes, the limit is 63"),
        (gguf(tensors=(tensor("a", ()) + bytes(64),)), "tensor a has 0 dimensions"),
        (gguf(tensors=(tensor("a", (1, 1, 1, 1, 1)),)), "tensor a has 5 dimensions"),
        (gguf(tensors=(tensor("a", (32, 0)),)), r"tensor a has the impossible shape \[32, 0\]"),
        (gguf(tensors=(tensor("a", (HUGE,)),)), "tensor a has the impossible shape"),
        (gguf(tensors=(tensor("a", (HUGE - 1,) * 4),)), "it is cut short"),
        (gguf(tensors=(tensor("a", kind=4),)), "tensor a: 4 is not a valid GgmlType"),
        (gguf(tensors=(tensor("a", (33,), kind=2),)), "tensor a: rows of 33 values are not whole blocks"),
        (gguf(tensors=(tensor("a", offset=16),), data=256), "tensor a is at offset 16, not a multiple of 32"),
        (gguf(tensors=(tensor("a", offset=HUGE),), data=256), "it is cut short"),
        (gguf(tensors=(tensor("a"), tensor("b", offset=96)), data=256), "tensors a and b lie over each other"),
        (gguf(tensors=(tensor("a"), tensor("a", offset=128)), data=256), "a tensor's name occurs twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_hostile_headers(data: bytes, match: str) -> None:
    refused(data, match)


def parse_all(data: bytes) -> None:
    """Parse and decode everything; only CheckpointError may come out."""
    try:
        file = parse(memoryview(data), NOWHERE)
        for key in file.metadata:
            _ = file.metadata[key]
        for name in file.tensors:
            assert len(file.tensor_bytes(name)) == file.tensors[name].nbytes
    except CheckpointError:
        pass


@given(st.binary(max_size=200))
def test_any_bytes_raise_only_checkpoint_errors(tail: bytes) -> None:
    parse_all(tail)
    parse_all(b"GGUF\x03\0\0\0" + tail)


@given(
    st.lists(
        st.tuples(st.integers(0, len(small_file()) - 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4
    )
)
def test_mutated_files_raise_only_checkpoint_errors(changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(small_file())
    for at, new in changes:
        data[at : at + len(new)] = new
    parse_all(bytes(data))
