"""Logits of the whole against transformers' own forward of the same model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch
from transformers import DynamicCache

from engines.torch.stages import Stages, config_of, prompt
from engines.torch.tiny_models import FAMILIES, LAYERS, load_model, write_model
from ropeway.engines.base import Logits, Span

PARTS = [64, 36, 1, 1, 1, 5, 1]


def theirs(path: Path, family: str, tokens: list[int]) -> list[Logits]:
    model = load_model(path, family)
    cache = DynamicCache(config=model.config)
    found, at = [], 0
    with torch.inference_mode():
        for rows in PARTS:
            ids = torch.tensor([tokens[at : at + rows]])
            found.append(model(input_ids=ids, cache=cache, use_cache=True).logits[0].float().numpy())
            at += rows
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_calls_give_the_same_bits(tmp_path: Path, family: str, dtype: torch.dtype) -> None:
    path = write_model(tmp_path, family, dtype)
    tokens = prompt(1, sum(PARTS))
    stages = Stages(config_of(path, LAYERS), (), chain=True, pack=False)
    torch.set_num_threads(1)
    at = 0
    for rows, expected in zip(PARTS, theirs(path, family, tokens), strict=True):
        found = stages.forward([Span(0, at, rows)], tokens[at : at + rows], range(rows))
        at += rows
        assert found.tobytes() == expected.tobytes(), f"{rows} rows up to {at}: {np.abs(found - expected).max()}"
