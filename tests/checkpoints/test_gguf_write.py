"""Writing: what is written is read again, and the size is known beforehand."""

from __future__ import annotations

from pathlib import Path

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.gguf_values import ValueType, scalar_field
from ropeway.checkpoints.gguf_write import OutTensor, encode_header, file_bytes, write_gguf


def test_a_written_file_is_read_again(tmp_path: Path) -> None:
    ones = memoryview(b"\x01" * 24)
    tensors = [
        OutTensor("first", GgmlType.F32, (6,), ones),
        OutTensor("zeros", GgmlType.Q4_0, (64, 3), None),
        OutTensor("last", GgmlType.F16, (6, 2), ones),
        OutTensor("tail", GgmlType.Q4_0, (32,), None),
    ]
    fields = {"answer": scalar_field(ValueType.UINT32, 42)}
    header = encode_header(fields, tensors)
    path = tmp_path / "out.gguf"
    with path.open("wb") as file:
        write_gguf(file, header, tensors)
    assert path.stat().st_size == file_bytes(header, tensors)
    read = GgufFile.open(path)
    assert dict(read.metadata) == {"answer": 42}
    assert bytes(read.tensor_bytes("first")) == bytes(read.tensor_bytes("last")) == bytes(ones)
    assert not any(read.tensor_bytes("zeros"))
    assert read.tensors["tail"].nbytes == 18
