"""What a slot held before does not show: a prompt's bits are the same in a used slot, and from a kept state on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engines.split import Split, tiny_config
from ropeway.engines.base import Span
from tiny_gguf import VOCABULARY, TinyModel, write_tiny

LAYERS, CHUNK = 4, 32
PROMPT = [int(token) for token in np.random.default_rng(1).integers(3, VOCABULARY, 120)]
OTHER = [int(token) for token in np.random.default_rng(2).integers(3, VOCABULARY, 200)]


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Split]:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=LAYERS))
    stages = Split(tiny_config(path, LAYERS, parallel=3, chunk=CHUNK), (1, 3), chain=False, tap=None)
    yield stages
    stages.close()


def read(split: Split, slot: int, tokens: list[int], first: int = 0) -> bytes:
    """Put a prompt into a slot by parts, from `first` on; the bits of its last row's logits."""
    bits = b""
    while first < len(tokens):
        rows = min(CHUNK - first % CHUNK, len(tokens) - first)
        bits = split.forward([Span(slot, first, rows)], tokens[first : first + rows], [rows - 1]).tobytes()
        first += rows
    return bits


def test_a_used_slot_gives_the_bits_of_a_new_one(split: Split) -> None:
    new = read(split, 0, PROMPT)
    split.release(0)
    assert read(split, 0, PROMPT) == new
    split.release(0)
    read(split, 0, OTHER)
    split.keep(0, 70)
    read(split, 0, OTHER, 70)
    split.release(0)
    read(split, 1, OTHER)
    assert read(split, 0, PROMPT) == new
    assert read(split, 2, PROMPT) == new


@pytest.mark.parametrize("rows", [32, 96])
def test_a_kept_state_goes_on_with_the_bits_of_the_whole_prompt(split: Split, rows: int) -> None:
    """From less than all that was kept, in another slot, one that was used before."""
    new = read(split, 0, PROMPT)
    states = [engine.save(0) for engine in split.stages]
    read(split, 1, OTHER)
    split.release(1)
    for engine, state in zip(split.stages, states, strict=True):
        engine.restore(1, state)
        engine.keep(1, rows)
    assert read(split, 1, PROMPT, rows) == new
    changed = [*PROMPT[:rows], *OTHER[rows : len(PROMPT)]]
    for engine, state in zip(split.stages, states, strict=True):
        engine.restore(2, state)
        engine.keep(2, rows)
    from_kept = read(split, 2, changed, rows)
    split.release(0)
    assert read(split, 0, changed) == from_kept != new
