"""The two families with states and planes: a long run, split equal to whole, the states too, at chosen positions; and
the states right after every rollback."""

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


@pytest.mark.parametrize("cuts", [(3,), (2, 4)], ids=["two", "three"])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen4_exp"])
def test_states_right_after_every_rollback(tmp_path: Path, family: str, cuts: tuple[int, ...]) -> None:
    """Rounds of a token and three guesses, of which so many come true: what is left is as if none had been guessed."""
    config = config_of(write_model(tmp_path, family, torch.bfloat16), LAYERS, invariant=True)
    drafted, plain = Stages(config, cuts), Stages(config, (), chain=True)
    tokens, at = prompt(1, 120), 58
    for model in (drafted, plain):
        model.forward([Span(0, 0, at)], tokens[:at], [at - 1])
    for right in (0, 1, 3, 2, 0, 0, 3, 1, 2, 3, 0, 2):
        wrong = [(token + 1) % 320 for token in tokens[at + 1 + right : at + 4]]
        drafted.forward([Span(0, at, 4)], [*tokens[at : at + 1 + right], *wrong], range(4))
        drafted.keep(0, at + 1 + right)
        for step in range(at, at + 1 + right):
            plain.forward([Span(0, step, 1)], [tokens[step]], [0])
        at += 1 + right
        assert states(drafted) == states(plain), f"states at {at}"
