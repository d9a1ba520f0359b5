"""A long run of the two families with states and planes: split equal to whole, the states too, at chosen positions."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch

from engines.torch.stages import Stages, config_of, prompt
from engines.torch.tiny_models import LAYERS, write_model
from ropeway.engines.base import Span
from ropeway.engines.torch.slot import States

PROMPT, STEPS, CHUNK = 2000, 128, 512
LOOK = (512, 1024, 1984, 2000, 2001, 2064, 2127)


def states(stages: Stages) -> dict[str, bytes]:
    """Every recurrent state of slot 0, by layer and part."""
    found: dict[str, bytes] = {}
    for engine in stages.engines:
        held: States = engine._slots[0].states
        for layer, state in held.items():
            parts = {str(number): tensor for number, tensor in state.conv.items()}
            if state.matrix is not None:
                parts["matrix"] = state.matrix
            for name, tensor in parts.items():
                found[f"{layer}.{name}"] = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return dict(sorted(found.items()))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", ["qwen3_5", "qwen4_exp"])
def test_2000_prompt_tokens_and_128_steps(tmp_path: Path, family: str) -> None:
    config = config_of(write_model(tmp_path, family, torch.bfloat16), LAYERS, chunk=CHUNK, context=2200)
    whole, split = Stages(config, (), chain=True), Stages(config, (2, 4))
    tokens, at, token = prompt(1, PROMPT), 0, 0
    parts = [CHUNK, CHUNK, CHUNK, 448, PROMPT - 3 * CHUNK - 448] + [1] * STEPS
    for rows in parts:
        given = tokens[at : at + rows] if at < PROMPT else [token]
        ours, theirs = (stages.forward([Span(0, at, rows)], given, [rows - 1]) for stages in (split, whole))
        at += rows
        assert ours.tobytes() == theirs.tobytes(), f"at {at}"
        token = int(theirs[0].argmax())
        if at in LOOK:
            found = states(split)
            assert found == states(whole), f"states at {at}"
            assert len(found) >= 2 * 4
