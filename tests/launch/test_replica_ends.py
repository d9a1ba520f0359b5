"""A served ring that gives up, is drained or stopped, at any time. Rings of threads."""

from __future__ import annotations

import itertools
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fake_ranks import Gate
from launch.served_rings import Place
from ropeway.engines.base import EngineError
from ropeway.launch import replica as replica_file
from ropeway.launch.replica_options import ReplicaOptions
from ropeway.serving.runner import Runner
from ropeway.serving.service import (
    FailedEvent,
    RingUnavailable,
    ServiceState,
)
from ropeway.transport import RingStopped
from transport.rings import wait_until


def test_restarts_in_a_row_are_bounded(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), Place(model, ReplicaOptions(restarts=3, pause_s=0.0)) as place:
        place.ready()
        place.rings.refuse = EngineError("no such device")
        place.rings.lose()
        wait_until(lambda: place.replica.state() is ServiceState.FAILED)
        assert place.rings.asked == 4
        with pytest.raises(RingUnavailable, match="given up after 3 restarts; the last: no such device"):
            place.ask(1)
        assert place.replica.ring()["state"] == "failed"


@pytest.mark.parametrize(("stable_s", "ended"), [(-1.0, ServiceState.READY), (1e9, ServiceState.FAILED)])
def test_a_ring_that_was_stable_may_be_lost_again(
    model: Path, monkeypatch: pytest.MonkeyPatch, stable_s: float, ended: ServiceState
) -> None:
    monkeypatch.setattr(replica_file, "STABLE_S", stable_s)
    with Place(model, ReplicaOptions(restarts=2, pause_s=0.0)) as place:
        for ring in range(1, 4):
            place.ready(ring)
            place.rings.lose()
        wait_until(lambda: len(place.rings.made) + (place.replica.state() is ServiceState.FAILED) == 4)
        wait_until(lambda: place.replica.state() is ended)


def test_a_bring_up_that_takes_long_was_not_stable(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_file, "STABLE_S", -1.0)
    place = Place(model, ReplicaOptions(restarts=2, pause_s=0.0))
    place.rings.refuse = OSError("nobody there")
    with place:
        wait_until(lambda: place.replica.state() is ServiceState.FAILED)
        assert place.rings.asked == 3


def test_a_fault_of_ours_costs_a_restart_and_is_not_told(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turn, faults = Runner.turn, itertools.count()

    def faulty(self: Runner) -> None:
        turn(self)
        if self._chooser.jobs and next(faults) == 0:
            raise KeyError("secret")

    monkeypatch.setattr(Runner, "turn", faulty)
    with Place(model) as place:
        place.ready()
        client = place.ask(1, max_tokens=390)
        wait_until(lambda: client.ended)
        assert client.failed is not None
        assert client.failed.text == "the server has failed (KeyError)"
        place.ready(2)
        place.judge(place.ask(1))
    assert "secret" in caplog.text


def test_draining_lets_the_running_ones_end(model: Path) -> None:
    with Place(model) as place, ThreadPoolExecutor(1) as pool:
        ring = place.ready()
        clients = [place.ask(first, max_tokens=30) for first in range(7)]
        wait_until(lambda: bool(clients[0].tokens))
        stopping = pool.submit(place.replica.stop, 30)
        wait_until(lambda: place.replica.state() is ServiceState.DRAINING)
        with pytest.raises(RingUnavailable, match="being stopped"):
            place.ask(1)
        stopping.result(30)
        for client in clients:
            place.judge(client)
        assert [type(end.result()) for end in ring.ends] == [RingStopped]


def test_what_a_drain_cannot_wait_for_is_told(model: Path) -> None:
    with Place(model) as place:
        place.ready()
        clients = [place.ask(first, max_tokens=380) for first in range(6)]
        wait_until(lambda: bool(clients[0].tokens))
        place.replica.drain(0)
        assert all(client.ended for client in clients)
        place.replica.stop(drain_s=0)
        assert [client.failed for client in clients] == [FailedEvent("the server is being stopped")] * 6


def test_a_loss_while_draining_ends_it(model: Path) -> None:
    with Place(model) as place, ThreadPoolExecutor(1) as pool:
        place.ready()
        client = place.ask(1, max_tokens=390)
        wait_until(lambda: bool(client.tokens))
        stopping = pool.submit(place.replica.stop, 60)
        wait_until(lambda: place.replica.state() is ServiceState.DRAINING)
        place.rings.lose()
        stopping.result(20)
        assert client.failed is not None
        assert place.rings.asked == 1
        assert place.replica.state() is ServiceState.DRAINING


def test_stopping_does_not_wait_for_a_ring_that_does_not_come(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_file, "LEAVE_S", 0.01)
    gate = Gate()
    place = Place(model)
    place.rings.before = gate
    with place:
        assert gate.reached.wait(10)
        place.replica.stop(drain_s=30)
        gate.open()
        place.replica._thread.join(20)
        assert not place.replica._thread.is_alive()
        with pytest.raises(RingUnavailable):
            place.ask(1)


def test_stopping_between_two_tries_and_before_the_first(model: Path) -> None:
    with Place(model, ReplicaOptions(pause_s=1000.0)) as place:
        place.ready()
        place.rings.lose()
        wait_until(lambda: place.replica.state() is ServiceState.RESTARTING)
        place.replica.stop(drain_s=30)
        assert place.rings.asked == 1
    never = Place(model)
    never.replica.stop(drain_s=30)
    assert never.rings.asked == 0
