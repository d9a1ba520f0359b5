"""Whole rings of fake engines: whatever goes on around it, a sequence gets the reply that it gets alone."""

from __future__ import annotations

from collections.abc import Sequence as Items
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_engine import VOCABULARY, Shape, logits_of, reply_alone, values_of
from fake_ranks import FakeRing, Gate, Verifier, fake_ring
from ropeway.engines.base import EngineError
from ropeway.serving.loop import HISTORY, Loop
from ropeway.serving.scheduler import Committed
from ropeway.serving.sequence import Finish, Sequence, State
from ropeway.transport import RingLost, RingStopped
from ropeway.types import SamplerAt
from ropeway.wire import ErrorCode

WORLDS = [
    pytest.param(1, SamplerAt.FIRST, id="alone"),
    *(pytest.param(w, at, id=f"{w}-{at.value}") for w in (2, 3, 4) for at in SamplerAt),
]


def finish(loop: Loop) -> list[Committed]:
    """Step until nothing is left to do."""
    committed: list[Committed] = []
    while not loop.scheduler.idle:
        committed += loop.step()
    return committed


def settled(ring: FakeRing, loop: Loop) -> None:
    """The rounds are over; every stage must have said done in the end, and hold nothing."""
    last = loop.records[-1].number
    ahead = {rank for rank in range(1, len(ring.engines)) if rank not in loop.records[-1].dones}
    live = ring.rank0.ring
    while live is not None and ahead:
        rank, number, _ = live.next_done()
        ahead -= {rank} if number == last else set()
    assert [engine.held for engine in ring.engines] == [0] * len(ring.engines)
    assert loop.held_rows == 0


def expected(ring: FakeRing, sequence: Sequence) -> list[int]:
    return reply_alone(sequence.prompt, sequence.max_tokens, ring.layers, sequence.stop_ids)


def prompts(seed: int, sizes: Items[int]) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [tuple(map(int, rng.integers(0, VOCABULARY, size))) for size in sizes]


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize(("world", "at"), WORLDS)
def test_streams_together_get_the_replies_they_get_alone(world: int, at: SamplerAt, groups: int) -> None:
    """More streams than slots, prompts of many parts and of one row, stop tokens."""
    with fake_ring(world, sampler=at) as ring:
        loop = ring.loop(Verifier(), groups=groups)
        sequences = [ring.sequence(prompt, 9, (3, 4)) for prompt in prompts(1, [30, 1, 17, 8, 9, 50, 2])]
        for sequence in sequences:
            loop.scheduler.add(sequence)
        committed = finish(loop)
        for sequence in sequences:
            assert sequence.produced == expected(ring, sequence)
            assert sequence.finish in (Finish.STOP, Finish.LENGTH)
            mine = [one for one in committed if one.sequence is sequence]
            assert [token for one in mine for token in one.tokens] == sequence.produced
            assert [one.finish for one in mine if one.finish] == [sequence.finish]
        settled(ring, loop)
        assert loop.step() == []


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_drafts_change_nothing_but_the_number_of_rounds(world: int, groups: int) -> None:
    """Drafts that are right, wrong from some place on, or wrong at once: every stage rolls back alike."""

    def propose(sequence: Sequence, most: int) -> tuple[int, ...]:
        done = len(sequence.produced)
        known = reply_alone(sequence.prompt, sequence.max_tokens, 4)[done : done + min(most, 4)]
        right = (done + sequence.id) % 5
        return tuple(token if at < right else (token + 1) % VOCABULARY for at, token in enumerate(known))

    with fake_ring(world) as ring:
        rounds = {}
        for drafting in (False, True):
            loop = ring.loop(Verifier(), groups=groups, propose=propose if drafting else lambda _, __: ())
            sequences = [ring.sequence(prompt, 25, (9,)) for prompt in prompts(2, [20, 5, 11])]
            for sequence in sequences:
                loop.scheduler.add(sequence)
            finish(loop)
            for sequence in sequences:
                assert sequence.produced == expected(ring, sequence)
            settled(ring, loop)
            rounds[drafting] = len(loop.records)
        assert rounds[True] < rounds[False]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_row_of_a_prompt_comes_back_where_it_is_wanted(world: int) -> None:
    """Beside a plain prompt and decodes, over many parts."""
    with fake_ring(world) as ring:
        chooser = Verifier()
        loop = ring.loop(chooser)
        sequences = [
            ring.sequence(prompt, 8, every_row=number % 2 == 0)
            for number, prompt in enumerate(prompts(3, [40, 12, 8, 30, 1]))
        ]
        for sequence in sequences:
            loop.scheduler.add(sequence)
        finish(loop)
        for sequence in sequences:
            assert sequence.produced == expected(ring, sequence)
        wanted = sequences[::2]
        assert sorted(chooser.prompt_logits) == sorted(sequence.id for sequence in wanted)
        for sequence in wanted:
            rows = logits_of(values_of(sequence.prompt, ring.layers)).tolist()
            assert chooser.prompt_logits[sequence.id] == list(enumerate(rows))


@pytest.mark.parametrize("groups", [1, 3, 8])
@pytest.mark.parametrize("world", [2, 3])
def test_a_ring_never_waits_for_itself(world: int, groups: int) -> None:
    """All rows of a prompt come back, in more parts than the ring's buffers and sockets hold: 45 of 2 MiB.

    Many rounds are under way besides, of rows that no socket's buffer holds.
    """
    shape = Shape(hidden=1 << 16, context=368, max_rows=368, parallel=8)
    with fake_ring(world, shape, round_s=10.0) as ring:
        loop = ring.loop(Verifier(), groups=groups)
        sequences = [ring.sequence(prompt, 6, every_row=len(prompt) > 300) for prompt in prompts(5, [3] * 7 + [360])]
        for sequence in sequences:
            loop.scheduler.add(sequence)
            loop.step()
        finish(loop)
        for sequence in sequences:
            assert sequence.produced == expected(ring, sequence)


def test_a_sequence_that_is_cancelled_frees_its_slot_with_the_next_round() -> None:
    """In the queue, with half of its prompt read, and while it decodes."""
    with fake_ring(2, Shape(parallel=2)) as ring:
        loop = ring.loop(Verifier())
        decoding, entering, queued, last = (ring.sequence(prompt, 40) for prompt in prompts(6, [3, 60, 5, 7]))
        loop.scheduler.add(decoding)
        loop.step()
        for sequence in (entering, queued, last):
            loop.scheduler.add(sequence)
        while len(decoding.produced) < 3:
            loop.step()
        assert entering.state is State.ENTERING
        assert loop.scheduler.running == 2
        for sequence in (queued, entering, decoding):
            loop.scheduler.cancel(sequence.id)
        loop.step()
        assert loop.scheduler.running == 1
        assert ring.engines[0].held == len(last.prompt)
        finish(loop)
        assert last.produced == expected(ring, last)
        assert [s.finish for s in (decoding, entering, queued)] == [Finish.CANCELLED] * 3
        settled(ring, loop)


def test_where_the_time_of_a_round_went() -> None:
    with fake_ring(3) as ring:
        loop = ring.loop(Verifier())
        loop.scheduler.add(ring.sequence(range(20), 5))
        finish(loop)
        settled(ring, loop)
        loop.collect()
        first, prompt, *decodes = [record for record in loop.records if record.rows]
        parts = [(record.rows, record.parts) for record in (first, prompt, *decodes)]
        assert parts == [(16, 2), (4, 1)] + [(1, 1)] * 4
        assert first.unseen
        assert first.launched_ns < first.sent_ns < first.landed_ns
        for record in (prompt, *decodes):
            assert record.launched_ns < record.sent_ns < record.back_ns < record.landed_ns
            assert record.own_ns > 0 < record.head_ns
            assert record.own_ns + record.head_ns + record.wait_rows_ns <= record.landed_ns - record.launched_ns
        numbers = [record.number for record in loop.records]
        assert numbers == sorted(set(numbers))
        early = [record for record in decodes if len(record.dones) == 2]
        assert early, "dones are taken in as they come"
        assert all(0 < (record.wire_ns(3) or 0) < record.back_ns - record.launched_ns for record in early)
        assert len(prompt.dones) == 2
        assert prompt.wire_ns(3) is None, "the round before it was under way still"


def test_rounds_that_overlap_say_so() -> None:
    """What the wire costs can be told from a round that had the ring for itself."""
    with fake_ring(2) as ring:
        for groups in (1, 2):
            loop = ring.loop(Verifier(), groups=groups)
            sequences = [ring.sequence(prompt, 10) for prompt in prompts(8, [12, 20])]
            for sequence in sequences:
                loop.scheduler.add(sequence)
            finish(loop)
            settled(ring, loop)
            assert any(not record.alone for record in loop.records) == (groups == 2)
            if groups == 2:
                assert sum(record.alone for record in loop.records) < len(loop.records) / 2


def test_records_are_bounded() -> None:
    with fake_ring(1, Shape(context=400)) as ring:
        loop = ring.loop(Verifier())
        loop.scheduler.add(ring.sequence([1], HISTORY + 20))
        finish(loop)
        assert len(loop.records) == HISTORY
        assert all(record.wire_ns(1) is None for record in loop.records)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_an_engine_that_fails_ends_the_ring_and_says_where(rank: int) -> None:
    def fail() -> None:
        raise EngineError("out of luck")

    ends: list[Future[Exception]] = []

    def run() -> None:
        with fake_ring(3) as ring:
            loop = ring.loop(Verifier())
            loop.scheduler.add(ring.sequence(range(5), 20))
            while len(loop.records) < 3:
                loop.step()
            ends.extend(ring.ends)
            ring.engines[rank].before_forward = fail
            finish(loop)

    with pytest.raises(EngineError if rank == 0 else RingLost, match="out of luck") as caught:
        run()
    if isinstance(caught.value, RingLost):
        assert (caught.value.code, caught.value.rank) == (ErrorCode.ENGINE_FAILED, rank)
    assert not any(isinstance(end.result(), RingStopped) for end in ends)


def test_a_ring_that_is_stopped_in_mid_round_lets_go_of_the_loop() -> None:
    gate = Gate()
    with fake_ring(2) as ring:
        loop = ring.loop(Verifier())
        loop.scheduler.add(ring.sequence(range(5), 20))
        loop.step()
        ring.engines[1].before_forward = gate
        live = ring.rank0.ring
        assert live is not None
        live.on_end(gate.open)

        def stop() -> None:
            assert gate.reached.wait(10)
            live.stop()

        ring.pool.submit(stop)
        with pytest.raises(RingStopped):
            finish(loop)


def chaos(ring: FakeRing, data: st.DataObject) -> None:
    """Sequences come, are cancelled and finished from outside, in any order, at any time."""

    def propose(sequence: Sequence, most: int) -> tuple[int, ...]:
        done = len(sequence.produced)
        known = reply_alone(sequence.prompt, sequence.max_tokens, ring.layers)[done : done + most]
        return tuple(token ^ (done % 3 == 0 and at == 1) for at, token in enumerate(known[: sequence.id % 4]))

    chain = ring.layout.sampler is SamplerAt.LAST
    groups = data.draw(st.integers(1, 3), "groups")
    loop = ring.loop(Verifier(), groups=groups, propose=(lambda _, __: ()) if chain else propose)
    live: list[Sequence] = []
    everyone: list[Sequence] = []
    for _ in range(data.draw(st.integers(1, 12), "events")):
        what = data.draw(st.sampled_from(["add", "add", "step", "step", "cancel", "stop"]))
        if what == "add":
            prompt = data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40))
            every_row = not chain and data.draw(st.booleans())
            sequence = ring.sequence(prompt, data.draw(st.integers(1, 12)), (5,), every_row=every_row)
            loop.scheduler.add(sequence)
            live.append(sequence)
            everyone.append(sequence)
        elif what == "step":
            loop.step()
        elif live:
            sequence = live.pop(data.draw(st.integers(0, len(live) - 1)))
            loop.scheduler.finish(sequence.id, Finish.CANCELLED if what == "cancel" else Finish.STOP)
    finish(loop)
    for sequence in everyone:
        whole = expected(ring, sequence)
        assert sequence.produced == whole[: len(sequence.produced)]
        if sequence in live:
            assert sequence.produced == whole
    if everyone and loop.records:
        settled(ring, loop)


@pytest.mark.parametrize(("world", "at"), [(1, SamplerAt.FIRST), (2, SamplerAt.FIRST), (3, SamplerAt.LAST)])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_order_of_events(world: int, at: SamplerAt, data: st.DataObject) -> None:
    with fake_ring(world, Shape(parallel=3), sampler=at) as ring:
        chaos(ring, data)
