"""Real models over real ranks: drafting gives the text, greedy or sampled, that goes without it.

Where rows have other bits in company (docs/exactness.md), each runs in a part of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.launch.drafting import DraftKind, DraftOptions, open_drafting
from ropeway.launch.placement import Options, place
from ropeway.launch.rank0 import Rank0, open_local
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.sequence import SamplingParams, Sequence
from ropeway.serving.speech import PlainChooser
from ropeway.verify.repeat import check
from serving.drafting.eager import free
from tiny_gguf import VOCABULARY, TinyModel, write_tiny

LAYERS = 3


def sequences(first: int) -> list[Sequence]:
    """A prompt that repeats itself, one that does not, and both sampled; replies of different lengths."""
    rng = np.random.default_rng(5)
    phrase = rng.integers(3, VOCABULARY, 30).tolist()
    prompts = [tuple(phrase * 3), tuple(rng.integers(3, VOCABULARY, 50).tolist())]
    drawn = SamplingParams(temperature=0.7, top_k=40, seed=12)
    return [
        Sequence(first + number, prompts[number % 2], 40 + 7 * number, drawn if number > 1 else SamplingParams())
        for number in range(4)
    ]


def replies(rank0: Rank0, drafting: Drafting | None, first: int, groups: int) -> list[list[int]]:
    """Every reply; more streams than slots."""
    loop = rank0.loop(PlainChooser(), groups=groups, drafting=drafting)
    asked = sequences(first)
    for sequence in asked:
        loop.scheduler.add(sequence)
    while not loop.scheduler.idle:
        loop.step()
    assert loop.held_rows == 0
    return [sequence.produced for sequence in asked]


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_the_text_is_the_same(architecture: str, stages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    path = write_tiny(tmp_path / "large.gguf", TinyModel(architecture, LAYERS))
    other = write_tiny(tmp_path / "small.gguf", TinyModel(layers=1, seed=9))
    placement = place(Options(str(path), stages, threads=1, context=256, chunk=64, parallel=3))
    drafters = {
        "ngram": DraftOptions(DraftKind.NGRAM),
        "itself": DraftOptions(DraftKind.MODEL, str(path)),
        "another": DraftOptions(DraftKind.MODEL, str(other)),
    }
    with open_local(placement) as rank0:
        expected = replies(rank0, None, 0, 1)
        for turn, (name, options) in enumerate(drafters.items(), 1):
            with open_drafting(options, placement) as drafting:
                assert drafting is not None
                free(drafting)
                for groups in (1, 2):
                    assert replies(rank0, drafting, 20 * turn + 10 * groups, groups) == expected, name
                figures = drafting.figures
                assert figures.guesses > 20, name
                assert figures.guesses > figures.right or name == "itself", name
                assert name != "itself" or figures.right == figures.guesses, "its own weights are always right"


@pytest.mark.parametrize("kind", [GgmlType.F16, GgmlType.F32, GgmlType.BF16], ids=lambda kind: kind.name)
def test_the_text_is_the_same_where_bits_depend_on_the_batch(
    kind: GgmlType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream alone, every logit drawn upon: sampled at a high temperature."""
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    path = write_tiny(tmp_path / "large.gguf", TinyModel("llama", LAYERS, kind))
    placement = place(Options(str(path), 2, threads=1, context=256, chunk=64))
    prompt = tuple(np.random.default_rng(5).integers(3, VOCABULARY, 70).tolist())
    params = SamplingParams(temperature=1.0, seed=12)
    with open_local(placement) as rank0:
        assert not rank0.rows_stand_alone
        texts = []
        for number, options in enumerate((DraftOptions(), DraftOptions(DraftKind.MODEL, str(path)))):
            with open_drafting(options, placement) as drafting:
                loop = rank0.loop(PlainChooser(), drafting=None if drafting is None else free(drafting))
                sequence = Sequence(number, prompt, 150, params)
                loop.scheduler.add(sequence)
                while not loop.scheduler.idle:
                    loop.step()
                texts.append(sequence.produced)
                assert drafting is None or drafting.figures.right > 50
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", [GgmlType.Q8_0, GgmlType.F16], ids=lambda kind: kind.name)
def test_a_drafted_ring_equals_the_whole_model(kind: GgmlType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds that a ring really ran, drafts right and wrong among them, repeated in one process: the same bits."""
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    path = write_tiny(tmp_path / "large.gguf", TinyModel("qwen3", LAYERS, kind))
    placement = place(Options(str(path), 3, threads=1, context=256, chunk=64, parallel=3))
    prompts = [sequence.prompt for sequence in sequences(0)]
    with (
        open_local(placement) as rank0,
        open_drafting(DraftOptions(DraftKind.NGRAM), placement) as drafting,
    ):
        assert drafting is not None
        comparison = check(rank0, prompts, 60, groups=2, drafting=free(drafting))
    assert 0 < drafting.figures.right < drafting.figures.guesses
    assert comparison.steps == comparison.equal_steps == 60 * len(prompts)
