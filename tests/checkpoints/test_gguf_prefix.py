"""The first bytes of a GGUF: how many more its header needs, and the same errors as for the whole file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.gguf_file import GgufFile, HeaderCut, parse
from tiny_gguf import write_tiny


def test_every_prefix_says_what_it_needs(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    data = memoryview(path.read_bytes())
    whole = GgufFile.open(path)
    assert whole.header_bytes == min(info.offset for info in whole.tensors.values())
    for have in range(8, len(data), 61):
        if have < whole.header_bytes - whole.alignment:
            with pytest.raises(HeaderCut) as cut:
                parse(data[:have], path, len(data))
            assert have < cut.value.needed <= whole.header_bytes
        elif have >= whole.header_bytes:
            found = parse(data[:have], path, len(data))
            assert (found.tensors, found.header_bytes) == (whole.tensors, whole.header_bytes)
    assert parse(data, path).tensors == whole.tensors


def test_a_prefix_is_judged_by_the_size_of_the_file(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    data = memoryview(path.read_bytes())
    header = GgufFile.open(path).header_bytes
    with pytest.raises(CheckpointError, match=r"the file ends inside its header|more than the file can hold"):
        parse(data[:1000], path, 1000)
    with pytest.raises(CheckpointError, match="it is cut short"):
        parse(data[:header], path, len(data) - 100)
    lying = bytes(data[:8]) + (1 << 40).to_bytes(8, "little") + bytes(data[16:header])
    with pytest.raises(CheckpointError, match="more than the file can hold"):
        parse(memoryview(lying), path, len(data))
