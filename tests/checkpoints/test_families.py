"""Which checkpoints can be cut, and how the others are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.families import EMBEDDINGS, OUTPUT_NORM, family_of, layer_count, vocabulary_size
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile, TensorInfo
from ropeway.checkpoints.gguf_values import Field, Metadata, ValueType, scalar_field
from tiny_gguf import VOCABULARY, TinyModel, write_tiny


@pytest.fixture
def tiny(tmp_path: Path) -> GgufFile:
    return GgufFile.open(write_tiny(tmp_path / "tiny.gguf"))


def with_fields(gguf: GgufFile, **fields: Field) -> GgufFile:
    """The same file with some metadata changed; underscores stand for dots."""
    changed = {key.replace("__", "."): field for key, field in fields.items()}
    return replace(gguf, metadata=Metadata(str(gguf.path), gguf.metadata.fields | changed))


def test_a_known_architecture(tiny: GgufFile) -> None:
    assert "rope_freqs.weight" in family_of(tiny).shared
    assert layer_count(tiny) == TinyModel().layers
    assert vocabulary_size(tiny) == VOCABULARY


def test_other_architectures_are_refused_by_name(tiny: GgufFile) -> None:
    other = with_fields(tiny, general__architecture=scalar_field(ValueType.STRING, "mamba"))
    with pytest.raises(CheckpointError, match="architecture 'mamba' cannot be split yet; llama, qwen2, qwen3 can"):
        family_of(other)


def test_an_adapter_is_refused(tiny: GgufFile) -> None:
    other = with_fields(tiny, general__type=scalar_field(ValueType.STRING, "adapter"))
    with pytest.raises(CheckpointError, match="holds a adapter, not a model"):
        family_of(other)


def test_a_model_in_several_files_is_refused(tiny: GgufFile) -> None:
    other = with_fields(tiny, split__count=scalar_field(ValueType.UINT16, 3))
    with pytest.raises(CheckpointError, match="one of 3 files of a model; join them first"):
        family_of(other)


def test_unknown_and_missing_tensors_are_refused(tiny: GgufFile) -> None:
    odd = TensorInfo("cls.output.weight", GgmlType.F32, (64,), 0, 256)
    with pytest.raises(CheckpointError, match=r"a llama model with cls\.output\.weight cannot be split yet"):
        family_of(replace(tiny, tensors=tiny.tensors | {odd.name: odd}))
    for name in (EMBEDDINGS, OUTPUT_NORM):
        with pytest.raises(CheckpointError, match=f"there is no tensor {name}"):
            family_of(replace(tiny, tensors={key: info for key, info in tiny.tensors.items() if key != name}))
    flat = TensorInfo(EMBEDDINGS, GgmlType.F32, (64,), 0, 256)
    with pytest.raises(CheckpointError, match=r"tensor token_embd\.weight is not a matrix"):
        family_of(replace(tiny, tensors=tiny.tensors | {EMBEDDINGS: flat}))


@pytest.mark.parametrize("count", [0, 2**32 - 1])
def test_an_impossible_layer_count_is_refused(tiny: GgufFile, count: int) -> None:
    with pytest.raises(CheckpointError, match=f"counts {count} layers"):
        layer_count(with_fields(tiny, llama__block_count=scalar_field(ValueType.UINT32, count)))
