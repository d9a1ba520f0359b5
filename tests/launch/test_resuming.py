"""Requests that wait for the next ring and go on there (`resume`): the same reply, told once. Rings of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fake_engine import VOCABULARY, reply_alone
from launch.served_rings import SHAPE, Place
from ropeway.engines.base import EngineError
from ropeway.launch import replica as replica_file
from ropeway.launch.replica_options import ReplicaOptions
from ropeway.serving.sequence import Finish, SamplingParams
from ropeway.serving.service import GenerateEvent, GenerateRequest, Penalties, TokenEvent
from ropeway.types import Backend, EngineKind
from serving.served import Client
from transport.rings import wait_until

RESUMED = ReplicaOptions(pause_s=0.0, resume=True, restarts=10**9)
LONG = 150


def begin(place: Place, request: GenerateRequest, client: type[Client] = Client) -> Client:
    """A request that has heard some tokens."""
    one = client(request)
    one.id = place.replica.submit(request, one)
    wait_until(lambda: len(one.tokens) > 3 or one.ended)
    return one


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_replies_go_on_over_several_rings_as_if_nothing_had_been(model: Path, world: int, groups: int) -> None:
    options = ReplicaOptions(pause_s=0.0, resume=True, restarts=1000, groups=groups)
    with Place(model, options, world=world) as place:
        place.ready()
        clients = [place.ask(first, 5 + first, LONG) for first in range(SHAPE.parallel + 3)]
        for rings in (2, 3, 4):
            heard = sum(len(client.tokens) for client in clients)
            wait_until(lambda heard=heard: sum(len(client.tokens) for client in clients) > heard + 20)  # type: ignore[misc]
            place.rings.lose()
            place.ready(rings)
        for client in clients:
            place.judge(client)
            assert client.prompt is not None
            assert client.prompt.cached_tokens == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"params": SamplingParams(1.0, seed=7)},
        {"params": SamplingParams(0.7, top_k=20, seed=8), "penalties": Penalties(0.4, 0.3, 1.2)},
        {"top_logprobs": 3, "params": SamplingParams(1.0, seed=9)},
        {"logit_bias": {3: 4.0, 5: -100.0}},
        {"stop_ids": frozenset({6})},
    ],
)
def test_what_is_chosen_does_not_depend_on_the_rings(model: Path, changes: dict[str, Any]) -> None:
    request = GenerateRequest((1, 2, 3), LONG, **changes)
    with Place(model, RESUMED) as place:
        place.ready()
        alone = begin(place, request)
        wait_until(lambda: alone.ended)
        client = begin(place, request)
        for rings in (2, 3):
            if not client.ended:
                place.rings.lose()
            if client.ended:
                break
            place.ready(rings)
        wait_until(lambda: client.ended)
    assert (client.tokens, client.finish) == (alone.tokens, alone.finish)


class Free:
    """A grammar that allows everything."""

    def mask(self) -> npt.NDArray[np.bool_]:
        return np.ones(VOCABULARY, np.bool_)

    def advance(self, token: int) -> None:
        pass


def test_a_reply_by_a_grammar_that_has_begun_ends(model: Path) -> None:
    with Place(model, RESUMED) as place:
        place.ready()
        client = begin(place, GenerateRequest((1, 2), LONG, constraint=Free()))
        place.rings.lose("rank 1 has gone")
        wait_until(lambda: client.ended)
        assert client.failed is not None
        assert "rank 1 has gone" in client.failed.text


def test_who_leaves_during_the_pause_is_forgotten(model: Path) -> None:
    with Place(model, RESUMED) as place:
        place.ready()
        leaves, stays = place.ask(1, 5, LONG), place.ask(2, 5, LONG)
        wait_until(lambda: len(leaves.tokens) > 3 and len(stays.tokens) > 3)
        place.rings.refuse = EngineError("not yet")
        place.rings.lose()
        wait_until(lambda: place.rings.asked > 2)
        heard = len(leaves.tokens)
        place.replica.end(leaves.id, Finish.CANCELLED)
        place.rings.refuse = None
        place.ready(2)
        place.judge(stays)
        assert len(leaves.tokens) == heard
        wait_until(lambda: place.replica.ring()["slots"] == {"used": 0, "total": SHAPE.parallel})


def test_nobody_waits_for_ever(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_file, "HOLD_S", 0.2)
    with Place(model, RESUMED) as place:
        place.ready()
        client = place.ask(1, 5, LONG)
        wait_until(lambda: len(client.tokens) > 3)
        place.rings.refuse = EngineError("the node is not there")
        place.rings.lose()
        wait_until(lambda: client.ended)
        assert client.failed is not None
        assert "the node is not there" in client.failed.text
        place.rings.refuse = None
        place.ready(2)
        place.judge(place.ask(3))


def test_other_engines_do_not_take_over(model: Path) -> None:
    with Place(model, RESUMED) as place:
        place.ready()
        client = place.ask(1, 5, LONG)
        wait_until(lambda: len(client.tokens) > 3)
        place.replica._kinds = frozenset({(EngineKind.MLX, Backend.METAL)})  # what the lost ring was
        place.rings.lose()
        wait_until(lambda: client.ended)
        assert client.failed is not None
        assert "other engines" in client.failed.text


def test_a_client_that_is_told_in_the_middle_of_the_loss_hears_no_token_twice(model: Path) -> None:
    with Place(model, RESUMED) as place:
        place.ready()
        made = [0]

        class Losing(Client):
            def __call__(self, event: GenerateEvent) -> None:
                super().__call__(event)
                if isinstance(event, TokenEvent) and len(self.tokens) in (5, 40) and made[0] < 2:
                    made[0] += 1
                    place.rings.lose()

        client = begin(place, GenerateRequest((4, 5, 6), LONG), Losing)
        wait_until(lambda: client.ended)
        assert client.tokens == reply_alone((4, 5, 6), LONG, SHAPE.layers)
        assert made == [2]
