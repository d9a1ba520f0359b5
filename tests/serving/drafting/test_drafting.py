"""Drafting on whole rings of fake engines: nothing but the number of rounds changes, whatever ends in the middle."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fake_engine import Shape, reply_alone
from fake_ranks import FakeRing, Verifier, fake_ring
from ropeway.engines.base import EngineError
from ropeway.serving.drafting.drafter import Guess
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.loop import Loop
from ropeway.serving.sequence import Finish, Sequence
from serving.drafting.eager import eager

SHAPE = Shape(layers=4, chunk=8, parallel=3, context=160, max_rows=160)


class Oracle:
    """A drafter that knows the reply, and is wrong at every position that `wrong` divides."""

    priors = (0.99,)

    def __init__(self, layers: int, wrong: int) -> None:
        self._layers, self._wrong = layers, wrong
        self.read: dict[int, int] = {}
        self.aheads = 0
        self.fails_at = 1 << 30

    def behind(self, sequence: Sequence) -> int:
        return len(sequence.prompt) + len(sequence.produced) - self.read.get(sequence.id, 0)

    def observe(self, sequence: Sequence) -> None:
        assert sequence.finish is None
        self.read[sequence.id] = len(sequence.prompt) + len(sequence.produced)

    def propose(self, sequence: Sequence) -> Iterator[Guess]:
        assert not self.behind(sequence)
        reply = reply_alone(sequence.prompt, 150, self._layers)
        for at in range(len(sequence.produced), len(reply)):
            if at >= self.fails_at:
                raise EngineError("the drafter is out of order")
            yield Guess(reply[at] if at % self._wrong else (reply[at] + 1) % 61, 0)

    def ahead(self, sequence: Sequence) -> bool:
        self.aheads += 1
        return False

    def forget(self, sequence_id: int) -> None:
        self.read.pop(sequence_id, None)

    def close(self) -> None:
        self.read.clear()


def drain(ring: FakeRing, drafting: Drafting, groups: int, sequences: list[Sequence]) -> int:
    """Run the sequences; the number of rounds."""
    loop = ring.rank0.loop(Verifier(), groups=groups, drafting=drafting)
    for sequence in sequences:
        loop.scheduler.add(sequence)
    return finish(loop)


def finish(loop: Loop) -> int:
    """Step until nothing is left to do; the number of rounds."""
    rounds = 0
    while not loop.scheduler.idle:
        loop.step()
        rounds += 1
    assert loop.held_rows == 0
    return rounds


@pytest.mark.parametrize("wrong", [3, 7, 1000])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_replies_are_the_same_and_come_in_fewer_rounds(world: int, groups: int, wrong: int) -> None:
    """Stop tokens and the last token lie inside drafts; more streams than slots."""
    with fake_ring(world, SHAPE) as ring:
        drafter = Oracle(ring.layers, wrong)
        drafting = eager(drafter)
        prompts = [(number, 7, number + 1) for number in range(6)]
        sequences = []
        for number, prompt in enumerate(prompts):
            stops = reply_alone(prompt, 30, ring.layers)[20:21] if number < 3 else []
            sequences.append(ring.sequence(prompt, 60 + number, stops))
        rounds = drain(ring, drafting, groups, sequences)
        for sequence in sequences:
            alone = reply_alone(sequence.prompt, sequence.max_tokens, ring.layers, sequence.stop_ids)
            assert sequence.produced == alone
            assert sequence.finish is (Finish.STOP if sequence.stop_ids else Finish.LENGTH)
        figures = drafting.figures
        assert figures.right > 0
        assert figures.right <= figures.guesses
        assert rounds < sum(len(sequence.produced) for sequence in sequences)
        assert drafter.read == {}, "who has ended is forgotten"
        assert all(engine.held == 0 for engine in ring.engines[:1])


def test_requests_that_come_after_a_pause() -> None:
    """Before it a round has no rows, which only frees a slot; behind it a prompt enters beside a decode."""
    with fake_ring(2, SHAPE) as ring:
        drafting = eager(Oracle(ring.layers, 5))
        loop = ring.rank0.loop(Verifier(), drafting=drafting)
        sequences = [ring.sequence((1, 2), 40), ring.sequence((3, 4), 40), ring.sequence(range(30), 40)]
        loop.scheduler.add(sequences[0])
        finish(loop)
        loop.scheduler.add(sequences[1])
        loop.step()
        loop.scheduler.add(sequences[2])
        finish(loop)
        for sequence in sequences:
            assert sequence.produced == reply_alone(sequence.prompt, 40, ring.layers)
        assert drafting.figures.turns + drafting.figures.right == 3 * 39


def test_a_stream_cancelled_with_guesses_in_flight_leaves_nothing() -> None:
    with fake_ring(2, SHAPE) as ring:
        drafter = Oracle(ring.layers, 1000)
        drafting = eager(drafter)
        loop = ring.rank0.loop(Verifier(), groups=2, drafting=drafting)
        gone, stays = ring.sequence((1, 2), 100), ring.sequence((3, 4), 60)
        for sequence in (gone, stays):
            loop.scheduler.add(sequence)
        while drafting.figures.guesses < 10:
            loop.step()
        loop.scheduler.cancel(gone.id)
        finish(loop)
        assert gone.finish is Finish.CANCELLED
        assert stays.produced == reply_alone(stays.prompt, 60, ring.layers)
        assert drafter.read == {}


def test_rank_0_guesses_ahead_only_for_those_with_guesses_under_way() -> None:
    with fake_ring(2, SHAPE) as ring:
        drafter = Oracle(ring.layers, 1000)
        drain(ring, eager(drafter), 1, [ring.sequence((1, 2), 60)])
        assert drafter.aheads > 0
    with fake_ring(1, SHAPE) as ring:
        drafter = Oracle(ring.layers, 1000)
        drain(ring, eager(drafter), 1, [ring.sequence((1, 2), 60)])
        assert drafter.aheads == 0, "alone there is nothing to wait for"


def test_a_drafter_that_fails_costs_its_guesses_alone(caplog: pytest.LogCaptureFixture) -> None:
    with fake_ring(2, SHAPE) as ring, caplog.at_level(logging.WARNING):
        drafter = Oracle(ring.layers, 1000)
        drafter.fails_at = 20
        drafting = eager(drafter)
        sequence = ring.sequence((1, 2), 60)
        drain(ring, drafting, 1, [sequence])
        assert sequence.produced == reply_alone((1, 2), 60, ring.layers)
        assert 0 < drafting.figures.guesses < 25
        assert [record.message for record in caplog.records] == ["drafting has ended: the drafter is out of order"]
