"""The scheduler against a fake stage: every sequence gets the reply that it gets alone, and nobody waits for ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropeway.serving.sequence import Finish, Sequence, State
from ropeway.serving.slots import Prefix
from ropeway.wire import CacheAction, CacheOp
from serving.fake_ring import Limits, Ring
from serving.fake_stage import VOCABULARY, reply_alone


def enough_rounds(limits: Limits, sequences: list[Sequence]) -> int:
    """One sequence after the other, a piece or a token a round, and a round to close each."""
    piece = max(1, min(limits.chunk, limits.max_rows - limits.parallel))
    return sum(-(-len(one.prompt) // piece) + one.max_tokens + 2 for one in sequences)


@st.composite
def any_limits(draw: st.DrawFn) -> Limits:
    parallel = draw(st.integers(1, 6))
    context = draw(st.integers(8, 60))
    return Limits(
        parallel,
        draw(st.integers(1, 20)),
        draw(st.integers(1, 50)),
        context,
        draw(st.integers(context, context * parallel)),
        draw(st.integers(1, 3)),
    )


def random_sequences(random: Random, limits: Limits, count: int) -> list[Sequence]:
    sequences = []
    number = 0
    for _ in range(count):
        number += random.randint(1, 3)
        size = random.randint(1, random.choice([4, limits.context - 1]))
        sequences.append(
            Sequence(
                number,
                tuple(random.randrange(VOCABULARY) for _ in range(size)),
                random.randint(1, 25),
                stop_ids=frozenset(random.sample(range(VOCABULARY), random.choice([0, 0, 2, 9]))),
                every_row=random.random() < 0.2,
            )
        )
    return sequences


def drafter(random: Random) -> Callable[[Sequence, int], tuple[int, ...]]:
    """Right so far, then wrong at some point, or nothing."""

    def propose(sequence: Sequence, most: int) -> tuple[int, ...]:
        count = random.randint(0, min(most, 5))
        known = [*sequence.prompt, *sequence.produced]
        drafts = reply_alone(tuple(known), count, frozenset())
        for index in range(count):
            if random.random() < 0.2:
                drafts[index] = random.randrange(VOCABULARY)
        return tuple(drafts)

    return propose


@given(limits=any_limits(), seed=st.integers(0, 2**32), count=st.integers(0, 14), drafts=st.booleans())
@settings(max_examples=250, deadline=None)
def test_every_reply_is_the_one_it_gets_alone(limits: Limits, seed: int, count: int, drafts: bool) -> None:
    live(limits, Random(seed), count, drafts)


@pytest.mark.parametrize("seed", range(24))
def test_a_crowd_gets_the_replies_that_each_gets_alone(seed: int) -> None:
    random = Random(seed)
    parallel = random.randint(2, 12)
    chunk = random.randint(2, 40)
    context = random.randint(60, 200)
    limits = Limits(
        parallel,
        chunk,
        random.randint(chunk, 4 * chunk + parallel),
        context,
        context * random.randint(1, parallel),
        random.randint(1, 4),
    )
    live(limits, random, 60, bool(seed % 2))


def live(limits: Limits, random: Random, count: int, drafts: bool) -> None:
    """Sequences come, are cancelled and end, in any order with rounds sent and taken back."""
    ring = Ring(limits)
    if drafts:
        ring.propose = drafter(random)
    sequences = random_sequences(random, limits, count)
    doomed = [one for one in sequences if random.random() < 0.2]
    cancelled: set[int] = set()
    coming = deque(sequences)
    while coming or not ring.scheduler.idle:
        choice = random.random()
        if coming and choice < 0.3:
            ring.add(coming.popleft())
        elif doomed and choice < 0.36:
            one = random.choice(doomed)
            if one.state is not State.FINISHED and one not in coming:
                cancelled.add(one.id)
                ring.scheduler.finish(one.id, random.choice([Finish.CANCELLED, Finish.STOP]))
        elif choice < 0.7:
            ring.send()
        elif ring.back:
            ring.take()
        assert ring.rounds <= enough_rounds(limits, sequences) + 2 * len(cancelled)
    ring.judge_end()
    for sequence in sequences:
        assert sequence.state is State.FINISHED
        reply = ring.expected(sequence)
        if sequence.id in cancelled:
            assert sequence.produced == reply[: len(sequence.produced)]
            continue
        assert sequence.produced == reply
        assert sequence.finish is (Finish.STOP if reply[-1] in sequence.stop_ids else Finish.LENGTH)


@given(limits=any_limits(), seed=st.integers(0, 2**32), count=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_a_prompt_cache_changes_no_reply(limits: Limits, seed: int, count: int) -> None:
    """Prompts share beginnings; what a stream holds is saved when it ends, or on the way, and dropped at random."""
    random = Random(seed)
    ring = Ring(limits, propose=drafter(random))
    kept: dict[bytes, tuple[int, ...]] = {}
    keys = iter(range(10_000))

    def lookup(sequence: Sequence) -> Prefix | None:
        best: Prefix | None = None
        for key, tokens in kept.items():
            same = 0
            while same < min(len(tokens), len(sequence.prompt) - 1) and tokens[same] == sequence.prompt[same]:
                same += 1
            if same and (best is None or same > best.rows):
                best = Prefix(key, same)
        return best

    ring.lookup = lookup
    roots = [tuple(random.randrange(VOCABULARY) for _ in range(limits.context)) for _ in range(2)]
    sequences = []
    for number in range(count):
        head = random.choice(roots)[: random.randint(1, limits.context - 1)]
        prompt = (*head[: random.randint(1, len(head))], random.randrange(VOCABULARY))[: limits.context - 1]
        sequences.append(Sequence(number, prompt, random.randint(1, 9), every_row=random.random() < 0.1))
    coming = deque(sequences)
    saves: list[tuple[bytes, tuple[int, ...]]] = []
    while coming or not ring.scheduler.idle:
        if coming and random.random() < 0.4:
            ring.add(coming.popleft())
        if kept and random.random() < 0.1:
            key = random.choice(list(kept))
            del kept[key]
            ring.scheduler.cache(CacheOp(CacheAction.DROP, 0, key))
        for one in ring.step():
            if random.random() < 0.5:
                key = next(keys).to_bytes(16, "little")
                ring.scheduler.cache(CacheOp(CacheAction.SAVE, one.sequence.id, key))
                saves.append((key, (*one.sequence.prompt, *one.sequence.produced[:-1])))
        for key, tokens in list(saves):
            if key in ring.stage.kept and not ring.back:
                kept[key] = tokens
                saves.remove((key, tokens))
    ring.judge_end()
    for sequence in sequences:
        assert sequence.produced == ring.expected(sequence)
