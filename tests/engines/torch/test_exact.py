"""A layer range gives the bits that one process gives: every family and cut, f32 and bf16; it reads its own bytes."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch

from engines.torch.stages import Stages, config_of, prompt, scenario
from engines.torch.tiny_models import FAMILIES, LAYERS, write_model
from ropeway.engines.base import EngineError, Span
from ropeway.engines.torch.directory_source import DirectorySource

CUTS = [cuts for count in (1, 2, 3) for cuts in combinations(range(1, LAYERS), count)]
DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_split_equals_whole_at_every_cut(tmp_path: Path, family: str, dtype: torch.dtype) -> None:
    config = config_of(write_model(tmp_path, family, dtype), LAYERS, parallel=3)
    expected = scenario(Stages(config, (), chain=True))
    assert all(np.isfinite(logits).all() and logits.std() > 0 for logits in expected)
    for number, cuts in enumerate(CUTS):
        found = scenario(Stages(config, cuts, chain=number % 3 == 2))
        for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert ours.tobytes() == theirs.tobytes(), f"cuts {cuts}, step {index}: {np.abs(ours - theirs).max()}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_range_reads_its_own_tensors_alone(tmp_path: Path, family: str) -> None:
    config = config_of(write_model(tmp_path, family, torch.bfloat16), LAYERS)
    read = 0
    for engine in Stages(config, (2, 3), chain=True).engines:
        source = engine._source
        assert isinstance(source, DirectorySource)
        assert source.touched_bytes == engine.weights_bytes
        read += source.touched_bytes
    source = DirectorySource(Path(config.model))
    table = source.bytes_under("embed_tokens.") if source.tied else 0
    assert read == sum(entry.nbytes for entry in source._checkpoint.tensors.values()) + table


def test_a_check_that_can_fail(tmp_path: Path) -> None:
    """A stale state of one layer shows in the logits, and a rollback that a stage missed is an error."""
    config = config_of(write_model(tmp_path, "qwen3_5", torch.bfloat16), LAYERS)
    split, whole = Stages(config, (2,)), Stages(config, (), chain=True)
    for model in (split, whole):
        model.forward([Span(0, 0, 40)], prompt(1, 40), [39])
    state = split.engines[1]._slots[0].states[2]
    assert state.matrix is not None
    state.matrix = state.matrix * 1.01
    ours, theirs = (model.forward([Span(0, 40, 1)], [7], [0]) for model in (split, whole))
    assert ours.tobytes() != theirs.tobytes()
    split.engines[0].keep(0, 39)
    with pytest.raises(EngineError, match="slot 0 stands at position 41, not at 39"):
        split.forward([Span(0, 39, 1)], [7], [0])
