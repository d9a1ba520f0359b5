"""The model drafter against a small model that is a function of every id a slot holds: its rows are always the right
ones, whatever came true.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import islice

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ropeway.engines.base import Logits, Span
from ropeway.serving import sampler
from ropeway.serving.drafting.model import GRADES, PRIORS, ModelDrafter
from ropeway.serving.sequence import SamplingParams, Sequence

VOCABULARY = 24
CONTEXT = 40
CHUNK = 4


def row_of(ids: Items[int]) -> sampler.Row:
    """The logits behind these ids."""
    rng = np.random.default_rng(abs(hash(tuple(ids))))
    return (3 * rng.standard_normal(VOCABULARY)).astype(np.float32)


class Toy:
    """A `SmallModel`; refuses whoever breaks its contract."""

    def __init__(self) -> None:
        self.slots: dict[int, list[int]] = {}
        self.closed = False
        self.rows = 0

    def forward(self, spans: Items[Span], tokens: Items[int], wanted: Items[int]) -> Logits:
        (span,) = spans
        held = self.slots.setdefault(span.slot, [])
        assert len(held) == span.first
        assert 0 < span.rows == len(tokens) <= CHUNK
        assert all(0 <= token < VOCABULARY for token in tokens)
        logits = []
        for row, token in enumerate(tokens):
            held.append(token)
            if row in wanted:
                logits.append(row_of(held))
        assert len(held) <= CONTEXT
        self.rows += len(tokens)
        return np.array(logits, np.float32).reshape(len(wanted), VOCABULARY)

    def keep(self, slot: int, length: int) -> None:
        assert 0 < length < len(self.slots[slot])
        del self.slots[slot][length:]

    def release(self, slot: int) -> None:
        self.slots.pop(slot, None)

    def close(self) -> None:
        self.closed = True


def drafter(toy: Toy, parallel: int = 2, vocabulary: int = VOCABULARY) -> ModelDrafter:
    return ModelDrafter(toy, parallel, CONTEXT, CHUNK, vocabulary)


def guessed(one: ModelDrafter, sequence: Sequence, most: int) -> list[int]:
    one.observe(sequence)
    assert one.behind(sequence) == 0
    return [guess.token for guess in islice(one.propose(sequence), most)]


def afresh(sequence: Sequence, count: int) -> list[int]:
    """What the small model says after all that is known, token by token."""
    known = [*sequence.prompt, *sequence.produced]
    said: list[int] = []
    for _ in range(count):
        position = len(sequence.produced) + len(said)
        said.append(sampler.choose(row_of([*known, *said]), sequence.params, position))
    return said


@settings(deadline=None)
@given(st.data())
def test_guesses_are_what_the_small_model_says_whatever_came_true(data: st.DataObject) -> None:
    toy = Toy()
    one = drafter(toy)
    params = data.draw(st.sampled_from([SamplingParams(), SamplingParams(temperature=0.9, top_k=9, seed=3)]))
    sequence = Sequence(
        4, tuple(data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9))), 50, params
    )
    while len(sequence.prompt) + len(sequence.produced) < CONTEXT - 8:
        most = data.draw(st.integers(0, 5))
        guesses = guessed(one, sequence, most)
        assert guesses == afresh(sequence, most)
        for _ in range(data.draw(st.integers(0, 3))):
            assert one.ahead(sequence)
        right = data.draw(st.integers(0, len(guesses)))
        sequence.produced += guesses[:right]
        sequence.produced.append(data.draw(st.integers(0, VOCABULARY - 1)))
    one.forget(sequence.id)
    assert toy.slots == {}


def test_a_drafter_with_the_models_own_weights_is_always_right() -> None:
    for params in (SamplingParams(), SamplingParams(temperature=1.2, top_p=0.9, seed=11)):
        sequence = Sequence(0, (1, 2, 3), 50, params)
        one = drafter(Toy())
        while len(sequence.produced) < 30:
            guesses = guessed(one, sequence, 4)
            target = afresh(sequence, 5)
            assert guesses == target[:4]
            sequence.produced += target


def test_what_came_true_is_not_read_twice() -> None:
    toy = Toy()
    one = drafter(toy)
    sequence = Sequence(0, (1, 2, 3), 50)
    guesses = guessed(one, sequence, 3)
    assert toy.rows == 3 + 2, "the last guess has not been read"
    assert one.ahead(sequence)
    assert one.ahead(sequence)
    ahead = afresh(sequence, 5)
    sequence.produced += ahead[:4]
    assert toy.rows == 7
    one.observe(sequence)
    assert toy.rows == 7
    assert guesses == ahead[:3]
    assert [guess.token for guess in islice(one.propose(sequence), 1)] == ahead[4:]


def test_streams_have_a_slot_each_and_a_stream_too_many_gets_no_guesses() -> None:
    toy = Toy()
    one = drafter(toy, parallel=2)
    sequences = [Sequence(number, (number + 1, 5), 9) for number in range(3)]
    assert [guessed(one, sequence, 2) for sequence in sequences[:2]] == [afresh(s, 2) for s in sequences[:2]]
    one.observe(sequences[2])
    assert list(one.propose(sequences[2])) == []
    assert not one.ahead(sequences[2])
    one.forget(0)
    assert guessed(one, sequences[2], 2) == afresh(sequences[2], 2)
    one.forget(99)


def test_the_context_and_the_vocabulary_end_a_proposal() -> None:
    toy = Toy()
    sequence = Sequence(0, tuple(range(20)), 50)
    assert len(guessed(drafter(toy), sequence, 100)) == CONTEXT - 20 + 1
    few = drafter(Toy(), vocabulary=4)
    prompt = next(p for p in range(4) if afresh(Sequence(0, (p,), 9), 1)[0] >= 4)
    unknown = Sequence(1, (prompt,), 9)
    assert guessed(few, unknown, 3) == []
    assert not few.ahead(unknown)
    unknown.produced.append(20)
    few.observe(unknown)
    assert few.behind(unknown) == 1, "a token that the small model does not have cannot be read"
    assert list(few.propose(unknown)) == []


def test_grades_and_end() -> None:
    toy = Toy()
    one = drafter(toy)
    assert len(PRIORS) == len(GRADES) + 1
    sequence = Sequence(0, (1,), 50)
    one.observe(sequence)
    for guess in islice(one.propose(sequence), 20):
        assert 0 <= guess.grade <= len(GRADES)
    one.close()
    assert toy.closed
