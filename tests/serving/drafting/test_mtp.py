"""A next-token head as a drafter: every row reaches it once, in order, with the token that follows; guesses go back."""

from __future__ import annotations

import struct

import pytest

from fake_engine import Shape, reply_alone, values_of
from fake_ranks import Verifier, fake_ring
from ropeway.serving.drafting.drafter import RowReader
from ropeway.serving.drafting.mtp import MtpDrafter
from ropeway.serving.sequence import Sequence
from serving.drafting.eager import eager

SHAPE = Shape(layers=4, chunk=8, parallel=3, context=160, max_rows=160)
PROMPTS = [tuple(range(30)), (5,), tuple(range(9, 26)), tuple(range(2, 10)), tuple(range(7, 19))]
STEPS = 20


class Head:
    """A head that knows the replies, is wrong where `wrong` divides, and checks all that it is given."""

    def __init__(self, wrong: int = 1 << 30) -> None:
        self._wrong = wrong
        self._texts = [(*prompt, *reply_alone(prompt, 150, SHAPE.layers)) for prompt in PROMPTS]
        self._values = [values_of(text, SHAPE.layers) for text in self._texts]
        self._which: dict[int, int] = {}
        self._length: dict[int, int] = {}
        self.rows = 0
        self.closed = False

    def take(self, slot: int, rows: bytes, tokens: list[int]) -> tuple[int, float]:
        size = len(rows) // len(tokens)
        values = [struct.unpack_from("<Q", rows, at)[0] for at in range(0, len(rows), size)]
        first = self._length.get(slot, 0)
        if not first:
            self._which[slot] = next(i for i, known in enumerate(self._values) if known[0] == values[0])
        which = self._which[slot]
        assert values == self._values[which][first : first + len(tokens)], "rows of other positions"
        assert tokens == list(self._texts[which][first + 1 : first + 1 + len(tokens)]), "other tokens"
        self._length[slot] = first + len(tokens)
        self.rows += len(tokens)
        return self._guess(slot)

    def go_on(self, slot: int, token: int) -> tuple[int, float]:
        self._length[slot] += 1
        return self._guess(slot)

    def keep(self, slot: int, length: int) -> None:
        assert length <= self._length[slot]
        self._length[slot] = length

    def release(self, slot: int) -> None:
        self._length.pop(slot, None)

    def close(self) -> None:
        self.closed = True

    def _guess(self, slot: int) -> tuple[int, float]:
        at = self._length[slot] + 1
        token = self._texts[self._which[slot]][at]
        return (token if at % self._wrong else (token + 1) % 61), 0.99


@pytest.mark.parametrize("wrong", [2, 5, 1 << 30])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("world", [2, 3])
def test_replies_are_the_same_and_come_in_fewer_rounds(world: int, groups: int, wrong: int) -> None:
    head = Head(wrong)
    drafting = eager(MtpDrafter(head, SHAPE.parallel))
    assert drafting.needs_rows
    with fake_ring(world, SHAPE) as ring:
        sequences = [ring.sequence(prompt, STEPS) for prompt in PROMPTS]
        loop = ring.rank0.loop(Verifier(), groups=groups, drafting=drafting)
        for sequence in sequences:
            loop.scheduler.add(sequence)
        rounds = 0
        while not loop.scheduler.idle:
            loop.step()
            rounds += 1
        plain = ring.rank0.loop(Verifier(), groups=groups)
        again = [ring.sequence(prompt, STEPS) for prompt in PROMPTS]
        for sequence in again:
            plain.scheduler.add(sequence)
        without = 0
        while not plain.scheduler.idle:
            plain.step()
            without += 1
    for sequence, prompt in zip(sequences, PROMPTS, strict=True):
        assert sequence.produced == reply_alone(prompt, STEPS, SHAPE.layers)
    assert rounds < without
    assert drafting.figures.right
    assert head.rows
    drafting.close()
    assert head.closed


def test_a_row_that_is_missing_ends_its_guesses_alone() -> None:
    drafter = MtpDrafter(Head(), 1)
    assert isinstance(drafter, RowReader)
    sequence = Sequence(0, PROMPTS[0], 5, produced=[3])
    drafter.take_rows(sequence, 4, memoryview(bytes(8)), 1)
    drafter.observe(sequence)
    assert list(drafter.propose(sequence)) == []
    assert drafter.behind(sequence) == 30


def test_more_sequences_than_slots() -> None:
    drafter = MtpDrafter(Head(), 1)
    rows = b"".join(struct.pack("<Q", value) for value in values_of(PROMPTS[0], SHAPE.layers))
    for number in range(2):
        sequence = Sequence(number, PROMPTS[0], 5, produced=list(reply_alone(PROMPTS[0], 1, SHAPE.layers)))
        drafter.take_rows(sequence, 0, memoryview(rows), 30)
        drafter.observe(sequence)
        guesses = drafter.propose(sequence)
        assert [next(guesses).token] == reply_alone(PROMPTS[0], 2, SHAPE.layers)[1:] if not number else not [*guesses]
    drafter.forget(0)
    drafter.forget(1)
    assert drafter.behind(Sequence(2, PROMPTS[0], 5)) == 29
