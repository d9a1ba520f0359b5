"""Embedding rows: the same values as dequantizing the whole matrix, for any rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from ropeway.checkpoints.embeddings import EmbeddingTable
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.families import EMBEDDINGS
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile, TensorInfo
from tiny_gguf import VOCABULARY, TinyModel, write_tiny


@pytest.mark.parametrize(
    "kind", [GgmlType.F32, GgmlType.F16, GgmlType.BF16, GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q8_0]
)
def test_rows_are_those_of_the_whole_matrix(tmp_path: Path, kind: GgmlType) -> None:
    gguf = GgufFile.open(write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=1, type=kind)))
    raw = np.frombuffer(gguf.tensor_bytes(EMBEDDINGS), np.uint8).reshape(VOCABULARY, -1)
    whole = dequantize(raw, GGMLQuantizationType(kind))
    table = EmbeddingTable(gguf)
    assert (table.width, table.vocabulary) == (64, VOCABULARY)
    for tokens in ([5], [0, VOCABULARY - 1, 7, 7], list(range(VOCABULARY)), []):
        rows = table.rows(tokens)
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous
        assert rows.tobytes() == whole[np.array(tokens, np.int64)].tobytes()


def test_a_kept_row_is_the_same_again_and_makes_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropeway.checkpoints.embeddings.KEPT_ROWS", 2)
    table = EmbeddingTable(GgufFile.open(write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=1))))
    both = table.rows([5, 6])
    for token in (5, 6, 5, 7, 6, 5):
        again = table.rows([token])
        assert token == 7 or again.tobytes() == both[token - 5 : token - 4].tobytes()


@pytest.mark.parametrize("token", [-1, VOCABULARY])
def test_a_token_outside_the_vocabulary_is_refused(tmp_path: Path, token: int) -> None:
    table = EmbeddingTable(GgufFile.open(write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=1))))
    with pytest.raises(ValueError, match="tokens: an id is outside the vocabulary of 320"):
        table.rows([3, token])


def test_a_matrix_that_is_missing_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    gguf = GgufFile.open(write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=1)))
    odd = TensorInfo(EMBEDDINGS, GgmlType.Q8_1, (32, 4), 0, 144)
    with pytest.raises(CheckpointError, match=r"there is no tensor token_embd\.weight"):
        EmbeddingTable(replace(gguf, tensors={}))
    with pytest.raises(CheckpointError, match="embeddings of type Q8_1 cannot be read"):
        EmbeddingTable(replace(gguf, tensors={EMBEDDINGS: odd}))
