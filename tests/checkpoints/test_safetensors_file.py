"""A safetensors header is read whole or refused by name, and no bytes of it do anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.safetensors_file import Dtype, SafetensorsFile, parse_header
from tiny_safetensors import encode

TENSORS: dict[str, npt.NDArray[Any]] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([7], np.int64),
    "empty": np.zeros((0, 4), np.float16),
    "half": np.array([[1, 2]], np.uint16),
}


def header(value: object, data: bytes = b"") -> memoryview:
    text = json.dumps(value).encode()
    return memoryview(len(text).to_bytes(8, "little") + text + data)


def entry(**changes: object) -> dict[str, object]:
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


def test_tensors_lie_where_the_header_says(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(encode(TENSORS))
    file = SafetensorsFile.open(path)
    assert list(file.tensors) == list(TENSORS)
    assert file.tensors["half"].dtype is Dtype.BF16
    for name, values in TENSORS.items():
        assert file.tensors[name].shape == values.shape
        assert bytes(file.tensor_bytes(name)) == values.tobytes()


def test_writing_to_the_map_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(encode(TENSORS))
    SafetensorsFile.open(path).tensor_bytes("a")[:4] = b"\xff\xff\xff\xff"
    assert path.read_bytes() == encode(TENSORS)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (memoryview(b""), "not a safetensors file"),
        (memoryview(b"\xff" * 16), "header's length makes no sense"),
        (memoryview((100).to_bytes(8, "little") + b"{}"), "cut off: its header ends at byte 108, the file at 10"),
        (memoryview((2).to_bytes(8, "little") + b"{]"), "header is not JSON"),
        (header([]), "header is not an object"),
        (header({"x": 3}), "tensor x: its entry is not an object"),
        (header(entry(dtype="F3")), "tensor x: its dtype 'F3' is not known"),
        (header(entry(shape=[-2])), "tensor x: its shape or its offsets make no sense"),
        (header(entry(shape=[True])), "tensor x: its shape or its offsets make no sense"),
        (header(entry(data_offsets=[0])), "tensor x: its shape or its offsets make no sense"),
        (header(entry(shape=[3]), b"\0" * 12), "tensor x: 8 bytes are set aside for it, its shape needs 12"),
        (header(entry(), b"\0" * 7), "the file is cut off: tensor x ends at byte"),
    ],
)
def test_refused(data: memoryview, why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        parse_header(data)


@pytest.mark.parametrize(("content", "why"), [(None, "cannot be read"), (b"", "empty"), (b"x" * 20, "not a safetens")])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "model.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"model\.safetensors: .*{why}"):
        SafetensorsFile.open(path)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_bytes_are_read_or_refused(noise: bytes, at: int) -> None:
    whole = bytearray(encode(TENSORS))
    whole[at : at + len(noise)] = noise
    for data in (noise, bytes(whole), bytes(whole[:at])):
        try:
            for tensor in parse_header(memoryview(data)).values():
                assert tensor.offset + tensor.nbytes <= len(data)
        except CheckpointError:
            pass
