"""A ring's recorded rounds, repeated on the whole model: equal where they are, and told apart where they are not."""

from __future__ import annotations

from collections.abc import Sequence as Items
from pathlib import Path

import numpy as np
import pytest

from fake_engine import FakeEngine, Shape, reply_alone
from fake_ranks import fake_ring
from ropeway.engines.base import Logits, Span
from ropeway.serving.scheduler import Propose
from ropeway.serving.sequence import Sequence
from ropeway.types import SamplerAt
from ropeway.verify.compare import Comparison
from ropeway.verify.reference import check_reference
from ropeway.verify.repeat import Recorder, repeat
from tiny_gguf import TinyModel, write_tiny

SHAPE = Shape()


class FakeWhole:
    """All layers in one engine. `wrong` is added to the logits of the forward of that number."""

    def __init__(self, wrong: int = -1) -> None:
        self._engine = FakeEngine(SHAPE, 0, SHAPE.layers, embed=True, head=True)
        self._wrong = wrong
        self.forwards = 0

    def forward(self, spans: Items[Span], tokens: Items[int], wanted: Items[int]) -> Logits:
        rows = memoryview(bytearray(len(tokens) * SHAPE.boundary.row_bytes()))
        self._engine.embed(tokens, rows)
        logits = self._engine.forward_head(spans, rows, wanted)
        self.forwards += 1
        if self.forwards == self._wrong:
            logits += np.float32(0.5) * (np.arange(logits.shape[1]) == logits.argmin(axis=1)[:1])
        return logits

    def keep(self, slot: int, length: int) -> None:
        self._engine.keep(slot, length)

    def release(self, slot: int) -> None:
        self._engine.release(slot)

    def close(self) -> None:
        self._engine.close()


def record(
    world: int,
    *,
    sampler: SamplerAt = SamplerAt.FIRST,
    groups: int = 1,
    propose: Propose = lambda _, __: (),
) -> tuple[Recorder, int]:
    """Several prompts through a ring; what was recorded, and how many tokens there were."""
    recorder = Recorder()
    with fake_ring(world, SHAPE, sampler=sampler) as ring:
        loop = ring.loop(recorder, groups=groups, propose=propose, on_round=recorder.on_round)
        prompts = [range(30), range(5, 6), range(9, 26), range(2, 10), range(7, 19)]
        sequences = [ring.sequence(prompt, 8) for prompt in prompts]
        for sequence in sequences:
            loop.scheduler.add(sequence)
        while not loop.scheduler.idle:
            loop.step()
        for sequence in sequences:
            assert sequence.produced == reply_alone(sequence.prompt, 8, SHAPE.layers)
    return recorder, sum(len(sequence.produced) for sequence in sequences)


def half_right(sequence: Sequence, most: int) -> tuple[int, ...]:
    done = len(sequence.produced)
    known = reply_alone(sequence.prompt, done + most, SHAPE.layers)[done : done + most]
    return tuple(token ^ (at == (done + sequence.id) % 3) for at, token in enumerate(known[:3]))


def figures(comparison: Comparison) -> tuple[int, int, float]:
    return comparison.steps, comparison.equal_steps, comparison.top1


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_ring_equals_the_whole(world: int, drafts: bool, groups: int) -> None:
    recorder, tokens = record(world, groups=groups, propose=half_right if drafts else lambda _, __: ())
    whole = FakeWhole()
    assert figures(repeat(whole, recorder)) == (tokens, tokens, 1.0)
    assert whole.forwards == sum(len(work.parts) for _, work in recorder.rounds)
    assert any(any(wanted.drafts for wanted in scheduled.wanted) for scheduled, _ in recorder.rounds) == drafts


def test_tokens_are_compared_where_the_last_rank_chose_them() -> None:
    recorder, tokens = record(3, sampler=SamplerAt.LAST)
    assert recorder.rows == 0
    assert figures(repeat(FakeWhole(), recorder)) == (tokens, tokens, 1.0)


def test_a_difference_in_one_forward_is_found() -> None:
    recorder, tokens = record(2)
    whole = FakeWhole()
    repeat(whole, recorder)
    comparison = repeat(FakeWhole(wrong=whole.forwards), recorder)
    assert comparison.steps == tokens
    assert comparison.equal_steps < tokens
    assert comparison.max_abs_diff == pytest.approx(0.5)


def test_a_token_that_is_another_one_is_found() -> None:
    recorder, tokens = record(2, sampler=SamplerAt.LAST)
    scheduled, _ = recorder.rounds[-2]
    scheduled.wanted[0].sequence.produced[-1] += 1
    comparison = repeat(FakeWhole(), recorder)
    assert (comparison.steps, comparison.equal_steps) == (tokens, tokens - 1)


def test_a_reference_that_cannot_read_the_model_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=1))
    for good in ("", "llamacpp", "torch", "tinygrad"):
        check_reference(good, path)
    with pytest.raises(ValueError, match=r"reference: the engine mlx reads safetensors, .*tiny.gguf is GGUF"):
        check_reference("mlx", path)
    with pytest.raises(ValueError, match="'abacus' is none of llamacpp"):
        check_reference("abacus", path)
