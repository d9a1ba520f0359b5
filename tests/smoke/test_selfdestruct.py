"""How a node gives itself back: by its own key, again where the service is busy, by a stop where it may not destroy."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ropeway.launch.provider import Offer, Order
from ropeway.launch.vastai import VastAi
from ropeway.smoke.environment import NodeSettings, read_settings
from ropeway.smoke.selfdestruct import self_destruct
from smoke.fake_rented import KEY, SLEEPER, Request
from smoke.fake_vast import FakeVast, fake_vast


@pytest.fixture
def fake() -> Iterator[FakeVast]:
    with fake_vast() as service:
        service.moods.command = SLEEPER
        yield service


def settings_of(fake: FakeVast, **more: str) -> NodeSettings:
    with VastAi(KEY, fake.url) as client:
        client.create(Offer(4100, 90, 0.05), Order("i", 40, "run/0", {"STAGE": "0"}))
    rented = fake.ever[0]
    variables = {"STAGE": "0", "NUM_STAGES": "1", "SEED_ADDR": "tcp:127.0.0.1:4:00", "MODEL": "m", "VAST_URL": fake.url}
    return read_settings(variables | {"CONTAINER_ID": str(rented.id), "CONTAINER_API_KEY": rented.key} | more)


def destruct(settings: NodeSettings) -> tuple[bool, list[str]]:
    said: list[str] = []
    return self_destruct(settings, said.append, lambda _: None), said


def test_it_destroys_itself_with_its_own_key(fake: FakeVast) -> None:
    settings = settings_of(fake)
    assert destruct(settings) == (True, ["this instance has destroyed itself"])
    assert fake.rented == []
    assert KEY not in str(fake.asked("destroy")[0].headers)


def test_it_stops_where_it_may_not_destroy(fake: FakeVast) -> None:
    settings = settings_of(fake)
    assert destruct(replace(settings, container_id="7999"))[0] is False, "another's id"

    def only_stop(request: Request) -> None:
        fake.ever[0].key = "" if request.method == "DELETE" else settings.container_key

    fake.gates["destroy"] = fake.gates["stop"] = only_stop
    assert destruct(settings)[0] is True
    assert fake.ever[0].stopped


def test_it_tries_again(fake: FakeVast) -> None:
    settings = settings_of(fake)
    fake.moods.self_destroys = deque(["busy", "broken", "ok"])
    done, said = destruct(settings)
    assert done
    assert len(said) == 3
    assert all(settings.container_key not in line for line in said)


def test_without_a_key_it_says_that_its_machine_goes_on(fake: FakeVast) -> None:
    done, said = destruct(settings_of(fake, CONTAINER_API_KEY=" "))
    assert not done
    assert "may go on costing money" in said[0]
