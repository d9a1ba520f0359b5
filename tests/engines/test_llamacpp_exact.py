"""A layer range of a GGUF through llama.cpp gives the bits that one process gives: every cut, family and batch."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from engines.split import Pair, pair, tiny_config
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.engines.base import Span
from tiny_gguf import VOCABULARY, TinyModel, write_tiny

LAYERS = 5
CUTS = [cuts for count in (1, 2, 3) for cuts in combinations(range(1, LAYERS), count)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))


def tiny(folder: Path, architecture: str, kind: GgmlType = GgmlType.Q8_0) -> Path:
    return write_tiny(folder / f"{architecture}.gguf", TinyModel(architecture=architecture, layers=LAYERS, type=kind))


def prompt(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, VOCABULARY, count)]


def read_prompt(both: Pair, slot: int, tokens: list[int], chunk: int) -> int:
    """Put a prompt into `slot` by parts; the greedy next token."""
    logits = np.empty((1, 1), np.float32)
    for first in range(0, len(tokens), chunk):
        part = tokens[first : first + chunk]
        logits = both.step([Span(slot, first, len(part))], part, [len(part) - 1])
    return int(logits[-1].argmax())


@pytest.mark.parametrize("chain", [False, True], ids=["ring", "chain"])
@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_prefill_by_parts_then_decode(tmp_path: Path, architecture: str, cuts: tuple[int, ...], chain: bool) -> None:
    path = tiny(tmp_path, architecture)
    with pair(tiny_config(path, LAYERS), cuts, chain=chain) as both:
        tokens = prompt(1, 75)
        token = read_prompt(both, 0, tokens, 32)
        for position in range(75, 83):
            token = int(both.step([Span(0, position, 1)], [token], [0])[0].argmax())


@pytest.mark.parametrize("kind", [GgmlType.F32, GgmlType.F16, GgmlType.BF16, GgmlType.Q4_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_weight_types(tmp_path: Path, architecture: str, kind: GgmlType) -> None:
    with pair(tiny_config(tiny(tmp_path, architecture, kind), LAYERS), (2,)) as both:
        token = read_prompt(both, 0, prompt(2, 40), 32)
        both.step([Span(0, 40, 1)], [token], [0])


@pytest.mark.parametrize("chain", [False, True], ids=["ring", "chain"])
@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("llama", GgmlType.Q8_0),
        ("llama", GgmlType.F32),
        ("llama", GgmlType.F16),
        ("llama", GgmlType.BF16),
        ("qwen2", GgmlType.Q4_0),
        ("qwen3", GgmlType.F32),
    ],
)
def test_several_streams_in_one_round(tmp_path: Path, architecture: str, kind: GgmlType, chain: bool) -> None:
    """Decodes beside a prompt's part, a gap between the slots, a rollback, a slot used again, every row wanted."""
    config = tiny_config(tiny(tmp_path, architecture, kind), LAYERS, parallel=3)
    with pair(config, (2, 4), chain=chain) as both:
        read_prompt(both, 0, prompt(3, 20), 32)
        read_prompt(both, 1, prompt(4, 9), 32)
        both.step([Span(0, 20, 1), Span(1, 9, 1), Span(2, 0, 17)], prompt(5, 19), [0, 1, 18])
        both.step([Span(0, 21, 1), Span(2, 17, 1)], prompt(6, 2), [0, 1])
        both.keep(2, 11)
        both.step([Span(0, 22, 1), Span(2, 11, 4)], prompt(7, 5), [0, 1, 2, 3, 4])
        both.release(1)
        both.step([Span(0, 23, 1), Span(1, 0, 6), Span(2, 15, 1)], prompt(8, 8), [6])


def test_both_ways_of_reading_rows_give_the_same_bits(tmp_path: Path) -> None:
    path = tiny(tmp_path, "llama")
    for tap in (False, True):
        with pair(tiny_config(path, LAYERS), (3,), tap=tap) as both:
            token = read_prompt(both, 0, prompt(9, 50), 32)
            both.step([Span(0, 50, 1)], [token], [0])
            both.step([Span(0, 51, 1)], [token], [0])


def test_a_saved_slot_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    config = tiny_config(tiny(tmp_path, "llama"), LAYERS, parallel=2)
    with pair(config, (2,)) as both:
        read_prompt(both, 0, prompt(10, 30), 32)
        saved = [engine.save(0) for engine in both.split.stages]
        both.split.release(0)
        for engine, state in zip(both.split.stages, saved, strict=True):
            engine.restore(0, state)
        both.step([Span(0, 30, 1)], [7], [0])


def test_a_check_that_can_fail(tmp_path: Path) -> None:
    """The comparison does see a stale row: a split that did not roll back is not the whole that did."""
    with pair(tiny_config(tiny(tmp_path, "llama"), LAYERS), (2,)) as both:
        read_prompt(both, 0, prompt(11, 30), 32)
        both.keep(0, 29)
        both.split.stages[1].release(0)
        with pytest.raises(AssertionError, match="largest difference"):
            both.step([Span(0, 29, 1)], [8], [0])
