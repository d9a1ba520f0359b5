"""What alone.py says of llama.cpp: rows of a stream that run together have the bits that each has alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.engines.base import EngineConfig, Span
from ropeway.engines.llamacpp.alone import ROW_BY_ROW, UNSPLIT_POSITIONS, UNTILED_ROWS, rows_stand_alone
from ropeway.engines.llamacpp.whole import WholeModel
from tiny_gguf import VOCABULARY, TinyModel, write_tiny

LAYERS = 2
WRITABLE = sorted(ROW_BY_ROW - {GgmlType.IQ4_NL})
"""Types that the package gguf can quantize to."""


def same_bits(path: Path, rows: int, depth: int, threads: int = 1) -> bool:
    """Whether `rows` rows behind `depth` others have the bits of single ones."""
    config = EngineConfig(str(path), 0, LAYERS, True, True, context=1024, parallel=1, chunk=128, threads=threads)
    model = WholeModel(config)
    tokens = [int(token) for token in np.random.default_rng(1).integers(3, VOCABULARY, depth + rows)]
    for at in range(0, depth, 60):
        part = tokens[at : min(at + 60, depth)]
        model.forward([Span(0, at, len(part))], part, [])
    together = model.forward([Span(0, depth, rows)], tokens[depth:], range(rows))
    model.keep(0, depth)
    apart = [model.forward([Span(0, at, 1)], tokens[at : at + 1], [0])[0] for at in range(depth, depth + rows)]
    model.close()
    return together.tobytes() == b"".join(row.tobytes() for row in apart)


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_rows_stand_alone(architecture: str, kind: GgmlType, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel(architecture, LAYERS, kind))
    assert rows_stand_alone(GgufFile.open(path), threads=1, context=1024)
    for rows in (2, 3, 4, 8, 32, UNTILED_ROWS):
        for depth in (5, 400):
            assert same_bits(path, rows, depth), (rows, depth)


def test_threads_are_no_matter_in_a_short_context(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel("llama", LAYERS))
    assert rows_stand_alone(GgufFile.open(path), threads=4, context=UNSPLIT_POSITIONS)
    assert not rows_stand_alone(GgufFile.open(path), threads=4, context=UNSPLIT_POSITIONS + 1)
    assert same_bits(path, 4, UNSPLIT_POSITIONS - 4, threads=2)


@pytest.mark.parametrize("kind", [GgmlType.F32, GgmlType.F16, GgmlType.BF16], ids=lambda kind: kind.name)
def test_unquantized_matrices_do_not(kind: GgmlType, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel("llama", LAYERS, kind))
    assert not rows_stand_alone(GgufFile.open(path), threads=1, context=64)


def test_tiles_do_not(tmp_path: Path) -> None:
    """The comparison can fail, and drafts must stay below."""
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel("llama", LAYERS))
    assert not same_bits(path, UNTILED_ROWS + 1, 5)
