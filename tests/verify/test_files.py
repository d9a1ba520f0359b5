"""Whatever byte of a model on disk is changed, its digest is another."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.verify.files import files_digest
from tiny_gguf import TinyModel, write_tiny
from tiny_llama import write_tiny_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("files") / "tiny.gguf", TinyModel(layers=1))


@given(st.data())
def test_any_byte_of_a_gguf(model: Path, data: st.DataObject) -> None:
    before, digest = model.read_bytes(), files_digest(model)
    at = data.draw(st.integers(0, len(before) - 1))
    changed = bytearray(before)
    changed[at] ^= data.draw(st.integers(1, 255))
    other = model.with_suffix(".other")
    other.write_bytes(changed)
    assert files_digest(other) != digest
    other.write_bytes(before)
    assert files_digest(other) == digest


def test_every_file_of_a_directory_that_is_read(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m", 1)
    digest = files_digest(path)
    names = sorted(file.name for file in path.iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(names)
    for name in names:
        before = (path / name).read_bytes()
        (path / name).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert files_digest(path) != digest, name
        (path / name).write_bytes(before)
    (path / "README.md").write_text("nothing that computes")
    assert files_digest(path) == digest
    (path / "tokenizer.json").rename(path / "tokenizers.json")
    assert files_digest(path) != digest
