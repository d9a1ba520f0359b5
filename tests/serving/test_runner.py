"""Requests through a runner on whole rings of fake engines: events, ends, and slots that become free."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_engine import VOCABULARY, Shape, logits_of, reply_alone, values_of
from fake_ranks import FakeRing, fake_ring
from ropeway.serving import runner as runner_file
from ropeway.serving.sequence import Finish, SamplingParams, Sequence
from ropeway.serving.service import FailedEvent, GenerateEvent, GenerateRequest, Penalties
from serving.served import Client, Served


def request(seed: int, size: int, max_tokens: int = 10, **changes: Any) -> GenerateRequest:
    prompt = tuple(int(token) for token in np.random.default_rng(seed).integers(0, VOCABULARY, size))
    return GenerateRequest(prompt, max_tokens, **changes)


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_request_hears_its_reply_and_one_end(world: int, groups: int) -> None:
    with fake_ring(world) as ring:
        served = Served(ring, groups=groups)
        clients = [served.submit(request(n, 3 + 7 * n, 12, stop_ids=frozenset({6}))) for n in range(9)]
        served.finish()
        for client in clients:
            assert client.tokens == served.expected(client.request)
            stopped = client.tokens[-1] == 6
            assert client.finish is (Finish.STOP if stopped else Finish.LENGTH)
            assert client.prompt is not None
            assert client.prompt.cached_tokens == 0
        assert {client.finish for client in clients} == {Finish.STOP, Finish.LENGTH}


def test_a_client_that_comes_back_at_its_last_event_finds_a_place() -> None:
    with fake_ring(2, Shape(parallel=1)) as ring:
        served = Served(ring, queue=0)
        again: list[Client] = []

        class Returning(Client):
            def __call__(self, event: GenerateEvent) -> None:
                super().__call__(event)
                if self.ended:
                    again.append(served.submit(request(2, 5)))

        served.inbox.submit(request(1, 5), served.parallel, Returning(request(1, 5)))
        served.until(lambda: bool(again) and again[0].ended)
        assert again[0].tokens == served.expected(request(2, 5))


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("finish", [Finish.CANCELLED, Finish.STOP])
def test_who_leaves_frees_its_slot_within_a_round(groups: int, finish: Finish) -> None:
    """Before it is taken in, in the queue, while its prompt is read, while it decodes; the others do not notice."""
    with fake_ring(2, Shape(parallel=2)) as ring:
        served = Served(ring, groups=groups)
        decoding = served.submit(request(1, 4, 60))
        served.until(lambda: bool(decoding.tokens))
        entering, queued, stays = (served.submit(request(n, 70, 20)) for n in (2, 3, 4))
        served.until(lambda: len(decoding.tokens) > 2)
        late = served.submit(request(5, 5))
        for client in (late, queued, entering, decoding):
            served.end(client, finish)
            served.end(client, finish)
        heard = len(decoding.tokens)
        served.runner.turn()
        assert served.inbox.live == 1
        assert served.loop.scheduler.running <= 1
        assert served.loop.scheduler.waiting <= 1
        served.finish()
        assert stays.tokens == served.expected(stays.request)
        assert len(decoding.tokens) == heard
        assert entering.tokens == queued.tokens == late.tokens == []
        assert not any(client.ended for client in (decoding, entering, queued, late))
        served.end(stays, finish)
        served.finish()


@pytest.mark.parametrize("groups", [1, 2])
def test_an_inbox_that_is_closed_in_mid_flight_leaves_nothing_running(groups: int) -> None:
    with fake_ring(2, Shape(parallel=2)) as ring:
        served = Served(ring, groups=groups, cache_rows=1000)
        clients = [served.submit(request(number, 5 + 30 * number, 40)) for number in range(4)]
        served.until(lambda: len(clients[0].tokens) > 3)
        served.inbox.close("enough")
        served.finish()
        assert [client.failed for client in clients] == [FailedEvent("enough")] * 4
        assert served.loop.scheduler.running == served.loop.scheduler.waiting == 0
        served.inbox.open()
        after = served.ask(request(9, 20))
        assert after.tokens == served.expected(after.request)


def test_log_probabilities_of_prompt_and_reply() -> None:
    with fake_ring(3) as ring:
        served = Served(ring)
        asked = request(1, 30, 5, top_logprobs=3, prompt_logprobs=True)
        beside = served.submit(request(2, 20, 30))
        served.until(lambda: bool(beside.tokens))
        client = served.ask(asked)
        assert client.tokens == served.expected(asked)
        assert client.prompt is not None
        first, *others = client.prompt.logprobs
        assert first is None
        rows = logits_of(values_of(asked.prompt, ring.layers))
        assert [kept.token for kept in others if kept] == list(asked.prompt[1:])
        for kept, row in zip(others, rows, strict=False):
            assert kept is not None
            logs = row - np.log(np.exp(row.astype(np.float64)).sum())
            assert kept.logprob == pytest.approx(float(logs[kept.token]), abs=1e-6)
            assert [token for token, _ in kept.top] == np.argsort(-row, kind="stable")[:3].tolist()
        served.end(beside)
        served.finish()


def test_a_seed_gives_the_same_reply_whatever_runs_beside_it() -> None:
    with fake_ring(2) as ring:
        served = Served(ring, groups=2)
        params = SamplingParams(temperature=1.5, top_k=20, seed=11)
        asked = request(1, 20, 25, params=params, penalties=Penalties(0.2, 0.2, 1.1))
        alone = served.ask(asked)
        warm = [SamplingParams(temperature=1.0, seed=seed) for seed in range(2, 8)]
        others = [served.submit(request(params.seed, 3 * params.seed, 20, params=params)) for params in warm]
        together = served.ask(asked)
        assert alone.tokens == together.tokens != served.expected(asked)
        served.finish()
        assert all(other.finish is Finish.LENGTH for other in others)


def test_a_request_that_nothing_can_be_chosen_for_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def mask(self) -> npt.NDArray[np.bool_]:
            return np.zeros(VOCABULARY, np.bool_)

        def advance(self, token: int) -> None:
            raise AssertionError("nothing was allowed")

    with fake_ring(2) as ring:
        served = Served(ring)
        good = served.submit(request(1, 5, 20))
        bad = served.submit(request(2, 9, 20, constraint=Broken()))
        served.finish()
        assert bad.failed is not None
        assert "nothing to choose from" in bad.failed.text
        assert bad.tokens == []
        assert good.tokens == served.expected(good.request)
    assert "request 1" in caplog.text


def test_a_request_that_the_ring_cannot_hold_ends_alone() -> None:
    with fake_ring(2) as ring:
        served = Served(ring)
        bad, good = served.submit(request(1, 200)), served.submit(request(2, 5))
        served.finish()
        assert bad.failed is not None
        assert "200 tokens" in bad.failed.text
        assert good.tokens == served.expected(good.request)


def test_an_idle_runner_wakes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_file, "IDLE_S", 30.0)
    with fake_ring(2) as ring:
        served = Served(ring)
        idle = threading.Event()
        served.loop.collect = idle.set  # type: ignore[method-assign]
        turning = ring.pool.submit(served.runner.turn)
        assert idle.wait(10)
        del served.loop.collect
        started = time.monotonic()
        client = served.submit(request(1, 5))
        turning.result(10)
        assert time.monotonic() - started < 10
        served.until(lambda: client.ended)


def test_a_client_that_hangs_up_inside_its_long_prompt_keeps_nobody_waiting() -> None:
    """Nor does the rest of its prompt run: a round has two parts of it at most."""
    with fake_ring(2, Shape(parallel=1)) as ring:
        served = Served(ring)
        long, short = served.submit(request(1, 80, 5)), served.submit(request(2, 4, 3))
        served.runner.turn()
        served.end(long)
        served.until(lambda: short.ended)
        assert short.tokens == served.expected(short.request)
        rows = sum(span.rows for part in ring.engines[0].parts for span in part)
        assert rows == 2 * Shape().chunk + 4 + 2
        served.finish()


def test_the_rounds_of_a_request_are_its_own() -> None:
    """One that waits for a slot has not entered, whatever runs meanwhile."""
    with fake_ring(2, Shape(parallel=1)) as ring:
        served = Served(ring)
        first, second = served.submit(request(1, 5, 30)), served.submit(request(2, 20, 3))
        served.until(lambda: first.ended)
        served.finish()
        served.settle()
        recent: Any = served.board.ring()["recent"]
        later, earlier = recent
        assert (earlier["id"], later["id"]) == (first.id, second.id)
        assert earlier["timeline"]["rounds"] == 30
        assert later["timeline"]["rounds"] == 2 + 2
        assert later["queued_ms"] >= earlier["total_ms"] - earlier["queued_ms"] - 50
        assert later["queued_ms"] <= later["first_token_ms"] <= later["total_ms"]
        for shown in (earlier, later):
            forwards = [span for span in shown["timeline"]["stages"][1]["spans"] if span[0] == "forward"]
            assert forwards[0][1] >= shown["queued_ms"] - 0.001


def chaos(ring: FakeRing, data: st.DataObject) -> None:
    """Requests come and go while rounds are under way; some drafts, some kept states, penalties or none."""

    def propose(sequence: Sequence, most: int) -> tuple[int, ...]:
        done = len(sequence.produced)
        known = reply_alone(sequence.prompt, done + most, ring.layers)[done : done + most]
        return tuple(token ^ (at == 1 and done % 2) for at, token in enumerate(known[: sequence.id % 4]))

    served = Served(
        ring,
        groups=data.draw(st.integers(1, 3), "groups"),
        cache_rows=data.draw(st.sampled_from([0, 150, 1000]), "cache rows"),
        propose=propose if data.draw(st.booleans(), "drafts") else lambda _, __: (),
    )
    clients: list[Client] = []
    for _ in range(data.draw(st.integers(1, 15), "events")):
        what = data.draw(st.sampled_from(["submit", "submit", "turn", "turn", "turn", "cancel", "stop"]))
        if what == "submit":
            common = data.draw(st.sampled_from([0, 0, 70, 90]), "of a common prompt")
            prompt = (*range(common), *data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30)))
            prompt = tuple(token % VOCABULARY for token in prompt)
            echo = data.draw(st.integers(0, 4)) == 0
            clients.append(
                served.submit(
                    GenerateRequest(
                        prompt,
                        data.draw(st.integers(1, 20)),
                        stop_ids=frozenset({4}),
                        prompt_logprobs=echo,
                        top_logprobs=2 if echo else None,
                    )
                )
            )
        elif what == "turn" or not clients:
            if not served.loop.scheduler.idle or served.inbox.live:
                served.runner.turn()
        else:
            client = clients[data.draw(st.integers(0, len(clients) - 1))]
            served.end(client, Finish.CANCELLED if what == "cancel" else Finish.STOP)
    served.finish()
    for client in clients:
        whole = served.expected(client.request)
        assert client.tokens == whole[: len(client.tokens)]
        assert client.failed is None
        if client.finish is None:
            assert client.gone
        else:
            assert client.tokens == whole
        if client.request.prompt_logprobs and client.prompt is not None:
            assert len(client.prompt.logprobs) == len(client.request.prompt)
    served.settle()
    assert [engine.held for engine in ring.engines] == [0] * len(ring.engines)
    served.judge_kept(exactly=False)


@pytest.mark.parametrize("world", [1, 2, 3])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_order_of_events(world: int, data: st.DataObject) -> None:
    with fake_ring(world, Shape(parallel=3, context=160, max_rows=160)) as ring:
        chaos(ring, data)
