"""Prompts that start from a kept state, on whole rings: the same reply by the same parts, sooner."""

from __future__ import annotations

from functools import partial

import pytest

from fake_engine import VOCABULARY, FakeEngine, Shape, reply_alone
from fake_ranks import fake_ring
from ropeway.engines.base import EngineError
from ropeway.serving.sequence import Finish, Sequence
from ropeway.serving.service import GenerateRequest
from serving.served import STATE_BYTES, Client, Served

SHAPE = Shape(context=200, max_rows=200)
PIECE = SHAPE.chunk
COMMON = tuple(3 * n % VOCABULARY for n in range(77))


def ask(*tail: int, tokens: int = 6, prompt: tuple[int, ...] = COMMON) -> GenerateRequest:
    return GenerateRequest((*prompt, *tail), tokens)


def heard(client: Client, tokens: int) -> bool:
    return len(client.tokens) >= tokens


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_a_restored_reply_equals_an_uncached_one(world: int, groups: int) -> None:
    with fake_ring(world, SHAPE) as ring:
        served = Served(ring, groups=groups, cache_rows=10_000)
        first = served.ask(ask(1, 2, 3))
        served.finish()
        cut = [[(span.first, span.rows) for span in part] for part in ring.engines[-1].parts]
        for engine in ring.engines:
            engine.parts.clear()
        again = served.ask(ask(1, 2, 3))
        assert first.prompt is not None
        assert again.prompt is not None
        assert (first.prompt.cached_tokens, again.prompt.cached_tokens) == (0, 72)
        assert first.tokens == again.tokens == served.expected(first.request)
        served.settle()
        for engine in ring.engines:
            parts = [[(span.first, span.rows) for span in part] for part in engine.parts]
            assert parts == cut[72 // PIECE :]
        other = served.ask(ask(9))
        assert other.prompt is not None
        assert other.prompt.cached_tokens == 72
        assert other.tokens == served.expected(other.request)
        assert (served.cache.hits, served.cache.misses, served.cache.hit_tokens) == (2, 1, 144)


def test_a_conversation_goes_on_from_its_last_reply() -> None:
    """Turn after turn, the prompt and the reply before it are kept; ended by its length, a stop token, or by us."""
    with fake_ring(3, SHAPE) as ring:
        served = Served(ring, cache_rows=10_000)
        prompt: tuple[int, ...] = COMMON
        for turn in range(6):
            client = served.submit(ask(turn, tokens=12, prompt=prompt))
            if turn % 2:
                served.until(partial(heard, client, 11))
                served.end(client, Finish.STOP)
            else:
                served.until(partial(heard, client, 12))
            assert client.prompt is not None
            # All of the turn before but its last token, which has not run, in whole pieces.
            before = len(prompt) - 1 if turn else 0
            assert client.prompt.cached_tokens == before - before % PIECE
            assert client.tokens == served.expected(client.request)[: len(client.tokens)]
            prompt = (*prompt, turn, *client.tokens)
        served.finish()
        assert len(served.cache) == 1, "what a longer one holds as well goes"
        served.judge_kept()


@pytest.mark.parametrize("groups", [1, 2])
def test_a_prompt_that_waits_for_a_slot_starts_from_the_state_that_its_owner_leaves(groups: int) -> None:
    """The slot is free with the plan that keeps the state: a round later the state serves as well."""
    with fake_ring(2, Shape(context=200, max_rows=200, parallel=1)) as ring:
        served = Served(ring, groups=groups, cache_rows=10_000)
        clients = [served.submit(ask(n)) for n in range(3)]
        served.finish()
        for client in clients:
            assert client.tokens == served.expected(client.request)
        assert [client.prompt and client.prompt.cached_tokens for client in clients] == [0, 72, 72]


def test_a_client_that_hangs_up_leaves_nothing_behind() -> None:
    with fake_ring(2, SHAPE) as ring:
        served = Served(ring, cache_rows=10_000)
        client = served.submit(ask(1, tokens=50))
        served.until(lambda: len(client.tokens) > 3)
        served.end(client)
        served.finish()
        assert len(served.cache) == 0
        served.judge_kept()


def test_least_used_states_go_and_every_stage_forgets_them() -> None:
    with fake_ring(3, SHAPE) as ring:
        served = Served(ring, cache_rows=200)
        for first in range(5):
            served.ask(ask(tokens=4, prompt=(first, *COMMON)))
            served.judge_kept()
        assert len(served.cache) == 2
        assert all(stage.kept_bytes <= 200 * 2 * STATE_BYTES for stage in ring.stages)
        cached = []
        for first in (3, 4, 0):
            client = served.ask(ask(tokens=4, prompt=(first, *COMMON)))
            assert client.tokens == served.expected(client.request)
            assert client.prompt is not None
            cached.append(client.prompt.cached_tokens)
        assert cached == [72, 72, 0]
        served.judge_kept()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_stage_that_cannot_keep_its_part(rank: int) -> None:
    """Nothing is restored from the others' parts, they forget them, and the next one is kept again."""
    failing = True

    def before_save() -> None:
        if failing:
            raise EngineError("no memory")

    def prepare(engine: FakeEngine) -> None:
        engine.before_save = before_save

    with fake_ring(3, SHAPE, prepare={rank: prepare}) as ring:
        served = Served(ring, cache_rows=10_000)
        for expected in (0, 0, 0, 72):
            client = served.ask(ask(1, 2))
            assert client.tokens == served.expected(client.request)
            assert client.prompt is not None
            assert client.prompt.cached_tokens == expected
            served.judge_kept()
            if served.cache.misses == 4:  # two of ours, and one of each judgement
                failing = False


def test_many_states_at_once() -> None:
    """Streams that end in one round, more than there is room for, next to ones that start from what they leave."""
    with fake_ring(2, SHAPE) as ring:
        served = Served(ring, cache_rows=170)
        for _ in range(3):
            clients = [served.submit(ask(n, tokens=5 + n // 4)) for n in range(8)]
            clients += [served.submit(ask(tokens=5, prompt=(n, *COMMON))) for n in range(4)]
            served.finish()
            for client in clients:
                assert client.tokens == served.expected(client.request)
            served.judge_kept()
        assert served.cache.hits > 3


def test_drafts_that_were_wrong_are_not_kept() -> None:
    """A stream ends with rows in its slots that no reply has: they serve nobody."""

    def propose(sequence: Sequence, most: int) -> tuple[int, ...]:
        done = len(sequence.produced)
        right = reply_alone(sequence.prompt, done + 1, SHAPE.layers)[done]
        return (right, *[0] * (most - 1))[:most]

    with fake_ring(2, SHAPE) as ring:
        served = Served(ring, cache_rows=10_000, propose=propose)
        prompt: tuple[int, ...] = COMMON
        for turn in range(4):
            client = served.submit(ask(turn, tokens=40, prompt=prompt))
            served.until(partial(heard, client, 13))
            served.end(client, Finish.STOP)
            assert client.tokens == served.expected(client.request)[: len(client.tokens)]
            assert client.prompt is not None
            assert (client.prompt.cached_tokens > len(prompt) - 2 * PIECE) == (turn > 0)
            prompt = (*prompt, turn, *client.tokens)
