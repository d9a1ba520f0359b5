"""What a node does before and after its stage: joining again, and staying until somebody knows of its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ropeway.cluster.client import AgentError
from ropeway.cluster.messages import ORCHESTRATOR, InferenceResponse
from ropeway.smoke import node as node_module
from ropeway.smoke.cluster import Cluster, Reach
from ropeway.smoke.environment import NodeSettings, read_settings
from ropeway.smoke.loopback.seed import Seed
from ropeway.smoke.node import Watchdog, last_words, serve


def settings(ticket: str, **more: str) -> NodeSettings:
    return read_settings({"STAGE": "0", "NUM_STAGES": "1", "SEED_ADDR": ticket, "MODEL": "/nowhere.gguf"} | more)


@pytest.fixture
def lingered(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a node waits for its own time to end, which it then need not do."""
    event = threading.Event()

    monkeypatch.setattr(Watchdog, "start", lambda self: None)
    monkeypatch.setattr(Watchdog, "stay", lambda self: event.set())
    return event


def test_a_failure_that_the_orchestrator_has_heard_ends_the_node(lingered: threading.Event) -> None:
    with Seed() as seed:
        inbox = seed.listen(ORCHESTRATOR)
        assert serve(settings(seed.ticket())) == 1
        message = inbox.receive(10.0)
    assert isinstance(message, InferenceResponse)
    assert message.error.startswith("stage 0: ")
    assert "/nowhere.gguf" in message.error
    assert not lingered.is_set()


def test_a_failure_that_nobody_has_heard_keeps_the_node(lingered: threading.Event) -> None:
    with Seed() as seed:
        assert serve(settings(seed.ticket())) == 1
    assert lingered.is_set()


def test_a_node_on_this_machine_never_stays(lingered: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "_end_with_stdin", lambda: None)
    with Seed() as seed:
        assert serve(settings(seed.ticket(), END_WITH_STDIN="1")) == 1
    assert not lingered.is_set()


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ([], "it said nothing"),
        (["  deep", " deeper", ""], " deeper"),
        (["Traceback (most recent call last):", "  File", "Error: no memory", "", "   ^", " "], "Error: no memory"),
        (["pp-gpu-node: out of memory"], "out of memory"),
    ],
)
def test_the_last_words_of_a_rank(tail: list[str], words: str) -> None:
    assert last_words(tail) == words


def test_joining_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    @contextmanager
    def flaky(ticket: str, label: str, up_s: float, reach: Reach) -> Iterator[Cluster]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise AgentError("no answer")
        assert label == "stage-0"
        assert up_s > 0
        with Seed() as seed:
            yield seed

    monkeypatch.setattr(node_module, "join_cluster", flaky)
    monkeypatch.setattr(node_module, "RETRY_S", 0.0)
    with node_module._joined(settings("tcp:127.0.0.1:4:00")) as cluster:
        assert cluster.node == "seed"
    assert tries == 3


def test_a_cluster_that_cannot_be_joined_is_given_up(
    lingered: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "JOIN_S", 0.5)
    monkeypatch.setattr(node_module, "RETRY_S", 0.1)
    with Seed() as seed:
        ticket = seed.ticket()
    assert serve(settings(ticket)) == 1
    assert lingered.is_set(), "its machine must still be given back"
