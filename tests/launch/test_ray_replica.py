"""How one replica on Ray is looked after, on a Ray of our own making: what is asked of it, and what ends a ring."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.odd import OK, Odd, odd
from ropeway.checkpoints.checkpoint import Checkpoint, open_checkpoint
from ropeway.launch import ray_replica
from ropeway.launch.placement import Options
from ropeway.launch.ray import Fleet, RayOptions
from ropeway.launch.ray_nodes import Demand, RayNode, Seats, seat
from ropeway.launch.ray_replica import RayReplica, State, state_of
from ropeway.serving.backends import Backend, Backends
from tiny_gguf import TinyModel, write_tiny


class LostNode(Exception):
    """What Ray raises of an actor that is gone."""


@dataclass(slots=True)
class FakeRay:
    """Says that `ended` has ended, with this outcome, once `at` has been asked about so many times."""

    at: int = 0
    ended: int = 0
    outcome: tuple[int, str] | Exception = (0, "")
    asked: int = 0
    on_ask: Any = None

    class exceptions:  # noqa: N801 (the name of Ray's module)
        """Where Ray keeps its errors."""

        RayError = LostNode

    def wait(self, waits: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        self.asked += 1
        if self.on_ask is not None:
            self.on_ask(self.asked)
        return ([waits[self.ended]], []) if self.at and self.asked > self.at else ([], waits)

    def get(self, waited: Any) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@dataclass(slots=True)
class Call:
    """A method of an actor, and how often it was called."""

    count: int = 0

    def remote(self) -> None:
        self.count += 1


@dataclass(slots=True)
class FakeActor:
    """An actor."""

    hold: Call = field(default_factory=Call)


class Watched:
    """One replica under watch, and what it was placed on."""

    def __init__(self, checkpoint: Checkpoint, ray: FakeRay) -> None:
        options = Options("tiny", 2, context=256, chunk=64)
        self.fleet = Fleet(ray, checkpoint, RayOptions(options, 1))
        self.backends, self.stopping = Backends(), threading.Event()
        self.replica = RayReplica(self.fleet, "replica 0", self.backends, self.stopping)
        nodes = [RayNode(name * 4, f"10.0.0.{number}", {"CPU": 4.0, "memory": 1e9}) for number, name in enumerate("ab")]
        self.plan: Seats = seat(checkpoint, options, nodes, Demand())
        self.actors = [FakeActor(), FakeActor()]

    def why(self, port: int) -> str:
        """Look after it until it ends."""
        return self.replica._look_after(self.actors, ["0", "1"], self.plan, Backend("replica 0", "127.0.0.1", port))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", TinyModel(layers=4)))


def test_a_replica_answers_once_it_is_ready(checkpoint: Checkpoint) -> None:
    ray = FakeRay(at=2)
    watched = Watched(checkpoint, ray)
    seen: list[list[bool]] = []
    ray.on_ask = lambda _: seen.append([backend.ready for backend in watched.backends.all()])
    with odd(OK) as server:
        backend = Backend("replica 0", "127.0.0.1", server.port, ready=False)
        watched.replica._look_after(watched.actors, ["0", "1"], watched.plan, backend)
    assert seen == [[False], [True], [True]]
    assert all(actor.hold.count for actor in watched.actors), "they hear that we are still there"


def test_who_has_ended_is_named(checkpoint: Checkpoint) -> None:
    with odd(OK) as server:
        lost = Watched(checkpoint, FakeRay(1, 1, LostNode())).why(server.port)
        assert lost == "rank 1 (10.0.0.1) was lost with its node or its host process (LostNode)"
        failed = Watched(checkpoint, FakeRay(1, 0, (1, "rank 0: no room")))
        assert failed.why(server.port) == "rank 0 (10.0.0.0) has ended with status 1: rank 0: no room"
        assert failed.fleet.aside() == {"aaaa"}
        ended = Watched(checkpoint, FakeRay(1, 0, (70, "")))
        assert ended.why(server.port) == "rank 0 (10.0.0.0) has ended with status 70"
        assert not ended.fleet.aside(), "it was not the fault of its node"


def test_a_replica_that_has_gone_silent_is_given_up(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_replica, "SILENT_S", 0.0)
    monkeypatch.setattr(ray_replica, "READY_S", 0.2)
    ray = FakeRay()
    watched = Watched(checkpoint, ray)
    with odd(OK) as server:

        def hang(asked: int) -> None:
            if asked == 2:
                server.answer = b""

        ray.on_ask = hang
        assert watched.why(server.port) == "rank 0 (10.0.0.0) has not answered for 0 s"


def test_one_that_has_never_answered_is_waited_for(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_replica, "SILENT_S", 0.0)
    ray = FakeRay()
    watched = Watched(checkpoint, ray)
    ray.on_ask = lambda asked: watched.stopping.set() if asked == 3 else None
    with odd(b"") as server:
        assert watched.why(server.port) == "stopped"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (OK, State.READY),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", State.NOT_READY),
        (b"", State.SILENT),
        (b"what\r\n\r\n", State.SILENT),
    ],
)
def test_what_a_replica_says_of_itself(answer: bytes, state: State) -> None:
    with contextlib.closing(Odd(answer)) as server:
        assert state_of(Backend("replica 0", "127.0.0.1", server.port)) is state


def test_two_replicas_do_not_share_nodes_where_there_are_others(checkpoint: Checkpoint) -> None:
    fleet = Watched(checkpoint, FakeRay()).fleet
    fleet.hold("replica 0", ("aaaa",))
    fleet.put_aside(("bbbb",))
    assert fleet.aside() == {"aaaa", "bbbb"}
    fleet.hold("replica 0", ())
    assert fleet.aside() == {"bbbb"}
