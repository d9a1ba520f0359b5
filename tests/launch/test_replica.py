"""A served ring that is lost and comes back, and requests that hear of it just once. Rings of threads."""

from __future__ import annotations

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fake_engine import reply_alone
from fake_ranks import Gate
from launch.served_rings import SHAPE, Place
from ropeway.engines.base import EngineError
from ropeway.launch.replica_options import ReplicaOptions
from ropeway.serving.sequence import Finish, SamplingParams
from ropeway.serving.service import (
    FailedEvent,
    GenerateEvent,
    GenerateRequest,
    Penalties,
    PromptTooLong,
    QueueFull,
    RingUnavailable,
    ServiceState,
    TokenEvent,
    Unsupported,
)
from ropeway.transport import RingStopped
from ropeway.types import SamplerAt
from serving.served import Client
from transport.rings import wait_until


def test_from_start_to_stop(model: Path) -> None:
    with Place(model, ReplicaOptions(queue=1)) as place:
        replica = place.replica
        ring = place.ready()
        assert json.loads(json.dumps(replica.ring()))["state"] == "ready"
        assert (replica.model_id, replica.context) == ("tiny", SHAPE.context)
        assert replica.fingerprint == replica.ring()["placement"]
        assert (replica.bos, replica.eos, replica.tokenizer.size) == ("<|im_start|>", "<|im_end|>", 320)
        assert "<|im_start|>" in replica.chat_template
        place.judge(place.ask(7))
        with pytest.raises(PromptTooLong) as caught:
            place.ask(1, SHAPE.context)
        assert (caught.value.prompt_tokens, caught.value.context) == (SHAPE.context, SHAPE.context)
        gate = Gate()
        ring.engines[0].before_forward = gate
        clients = [place.ask(first) for first in range(SHAPE.parallel + 1)]
        with pytest.raises(QueueFull):
            place.ask(9)
        gate.open()
        for client in clients:
            place.judge(client)
        replica.end(clients[0].id, Finish.CANCELLED)
        replica.end(10_000, Finish.CANCELLED)
    assert replica.state() is ServiceState.DRAINING
    assert [type(end.result()) for end in ring.ends] == [RingStopped]
    with pytest.raises(RingUnavailable):
        place.ask(1)


def test_a_chain_serves_the_likeliest_token_and_refuses_the_rest_by_name(model: Path) -> None:
    """Its last rank chooses: what needs the logits would be passed over in silence."""
    asked: dict[str, dict[str, Any]] = {
        "temperature": {"params": SamplingParams(0.5)},
        "presence_penalty": {"penalties": Penalties(presence=0.5)},
        "frequency_penalty": {"penalties": Penalties(frequency=-1.0)},
        "repetition_penalty": {"penalties": Penalties(repetition=1.1)},
        "logit_bias": {"logit_bias": {5: 2.0}},
        "logprobs": {"top_logprobs": 0},
    }
    with Place(model, sampler=SamplerAt.LAST) as place:
        place.ready()
        for field, settings in asked.items():
            with pytest.raises(Unsupported, match=f"^{field}: ") as caught:
                place.replica.submit(GenerateRequest((1, 2), 5, **settings), lambda _: None)
            assert caught.value.field == field
        place.judge(place.ask(3))
    with Place(model, world=1, sampler=SamplerAt.LAST) as place:
        place.ready()
        client = Client(GenerateRequest((1, 2), 5, SamplingParams(0.5)))
        client.id = place.replica.submit(client.request, client)
        wait_until(lambda: client.ended)
        assert client.failed is None


def test_before_there_is_a_ring_nobody_waits(model: Path) -> None:
    gate = Gate()
    place = Place(model)
    place.rings.before = gate
    with place:
        assert gate.reached.wait(10)
        assert place.replica.state() is ServiceState.STARTING
        with pytest.raises(RingUnavailable, match="the ring is starting"):
            place.ask(1)
        gate.open()
        place.ready()
        place.judge(place.ask(1))


@pytest.mark.parametrize("world", [2, 3])
def test_a_loss_under_load_ends_every_request_once_and_the_ring_comes_back(model: Path, world: int) -> None:
    with Place(model, world=world) as place:
        ring = place.ready()
        clients = [place.ask(first, 5 + 30 * (first % 3), 300) for first in range(12)]
        wait_until(lambda: sum(bool(client.tokens) for client in clients) >= SHAPE.parallel)
        place.rings.lose()
        wait_until(lambda: all(client.ended for client in clients))
        for client in clients:
            assert client.failed is not None
            assert "lost its mind" in client.failed.text
            expected = reply_alone(client.request.prompt, 300, SHAPE.layers)
            assert client.tokens == expected[: len(client.tokens)]
        assert place.ready(2) is not ring
        place.judge(place.ask(3))
        shown = place.replica.ring()
        assert (shown["state"], shown["detail"]) == ("ready", "")


def test_a_loss_is_told_before_what_is_left_is_put_away(model: Path) -> None:
    gate = Gate()
    with Place(model) as place:
        place.ready()
        place.judge(place.ask(1))
        client = place.ask(2, max_tokens=390)
        place.rings.behind = gate
        wait_until(lambda: bool(client.tokens))
        place.rings.lose()
        assert gate.reached.wait(10)
        assert client.failed is not None
        assert place.replica.state() is ServiceState.RESTARTING
        with pytest.raises(RingUnavailable, match="lost its mind") as caught:
            place.ask(1)
        assert caught.value.retry_after_s > 0
        shown = place.replica.ring()
        assert shown["streams"] == []
        assert shown["slots"] == {"used": 0, "total": SHAPE.parallel}
        place.rings.behind = lambda: None
        gate.open()
        place.ready(2)


def test_a_loss_is_told_while_the_loop_is_in_a_forward(model: Path) -> None:
    gate = Gate()
    with Place(model) as place:
        ring = place.ready()
        client = place.ask(2, max_tokens=390)
        wait_until(lambda: bool(client.tokens))
        ring.engines[0].before_forward = gate
        assert gate.reached.wait(10)
        place.rings.lose()
        wait_until(lambda: client.ended)
        assert place.replica.state() is ServiceState.RESTARTING
        gate.open()
        place.ready(2)
        place.judge(place.ask(2))


def test_an_idle_ring_that_is_lost_is_noticed_at_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropeway.serving.runner.IDLE_S", 60.0)
    with Place(model) as place:
        place.ready()
        place.rings.lose()
        place.ready(2)
        place.judge(place.ask(1))


@pytest.mark.parametrize("rank", [0, 1])
def test_an_engine_that_fails_costs_a_restart(model: Path, rank: int) -> None:
    def fail() -> None:
        raise EngineError("out of memory")

    with Place(model) as place:
        place.ready().engines[rank].before_forward = fail
        client = place.ask(1)
        wait_until(lambda: client.ended)
        assert client.failed is not None
        assert "out of memory" in client.failed.text
        place.ready(2)
        place.judge(place.ask(1))


def test_requests_that_race_with_losses_all_hear_of_their_end(model: Path) -> None:
    """Threads submit, hang up and read the board all the time, while one ring after another is lost."""
    heard: list[Client] = []
    stop = threading.Event()

    def clients(place: Place, first: int) -> None:
        for number in itertools.count(first):
            if stop.is_set():
                return
            try:
                client = place.ask(number % 50, 3 + number % 40, 1 + number % 30)
            except (RingUnavailable, QueueFull):
                stop.wait(0.001)
                continue
            heard.append(client)
            if number % 7 == 0:
                client.gone = True
                place.replica.end(client.id, Finish.CANCELLED)

    def watch(place: Place) -> None:
        while not stop.wait(0.001):
            json.dumps(place.replica.ring())

    options = ReplicaOptions(queue=16, cache_bytes=400 * 512, restarts=100, pause_s=0.0, groups=2)
    with Place(model, options) as place, ThreadPoolExecutor(5) as pool:
        place.ready()
        busy = [pool.submit(clients, place, 1000 * thread) for thread in range(3)] + [pool.submit(watch, place)]
        for lost in range(1, 13):
            place.ready(lost)
            due = len(heard) + 10
            while len(heard) < due:
                stop.wait(0.001)
            place.rings.lose()
        stop.set()
        for one in busy:
            one.result(20)
        wait_until(lambda: all(client.ended or client.gone for client in heard))
        place.ready(13)
        wait_until(lambda: not place.replica._inbox.live)
        place.judge(place.ask(1))
    assert any(client.failed for client in heard)
    assert any(client.finish for client in heard)
    for client in heard:
        whole = reply_alone(client.request.prompt, client.request.max_tokens, SHAPE.layers)
        assert client.tokens == (whole if client.finish else whole[: len(client.tokens)])


def test_a_client_that_is_called_back_may_ask_again(model: Path) -> None:
    """From inside its last event, on the loop's thread: also from inside the one that tells of a loss."""
    answers: list[object] = []

    class Again(Client):
        def __call__(self, event: GenerateEvent) -> None:
            super().__call__(event)
            if isinstance(event, FailedEvent) or (isinstance(event, TokenEvent) and event.finish):
                try:
                    answers.append(place.ask(1))
                except RingUnavailable as error:
                    answers.append(error)

    with Place(model) as place:
        place.ready()
        place.ask(3, client=Again)
        wait_until(lambda: bool(answers))
        assert isinstance(answers[0], Client)
        place.judge(answers[0])
        client = place.ask(3, max_tokens=390, client=Again)
        wait_until(lambda: bool(client.tokens))
        place.rings.lose()
        wait_until(lambda: len(answers) > 1)
        assert isinstance(answers[1], RingUnavailable)


def test_a_second_prompt_starts_from_the_first(model: Path) -> None:
    with Place(model, ReplicaOptions(cache_bytes=1 << 20)) as place:
        place.ready()
        first = place.ask(1, 100)
        place.judge(first)
        again = place.ask(1, 100)
        place.judge(again)
        assert first.prompt is not None
        assert again.prompt is not None
        assert (first.prompt.cached_tokens, again.prompt.cached_tokens) == (0, 96)
        wait_until(lambda: place.replica.ring()["prompt_cache"] != {})
        place.rings.lose()
        place.ready(2)
        after = place.ask(1, 100)
        place.judge(after)
        assert after.prompt is not None
        assert after.prompt.cached_tokens == 0


def test_a_ring_of_one_is_served_without_any_connection(model: Path) -> None:
    with Place(model, world=1) as place:
        ring = place.ready()
        place.judge(place.ask(1))

        def fail() -> None:
            raise EngineError("out of luck")

        ring.engines[0].before_forward = fail
        client = place.ask(2)
        wait_until(lambda: client.ended)
        assert client.failed == FailedEvent("out of luck")
        place.ready(2)
        started = time.monotonic()
        place.judge(place.ask(2))
        assert time.monotonic() - started < 10
