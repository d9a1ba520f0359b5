"""One address before two replicas: who is asked, what is tried elsewhere, and what a client sees of a loss."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from api.fake_service import WAIT_S, FakeService
from api.live import Answer, Live, serving
from ropeway.api import open_listener, run_server
from ropeway.api.balancer import Backend, Backends, Balancer


@dataclass(frozen=True, slots=True)
class Front:
    """The balancer, as a live server, and the two servers behind it."""

    door: Live
    one: Live
    other: Live
    backends: Backends

    def stream(self) -> http.client.HTTPConnection:
        """A streamed reply under way; nobody reads it yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.door.port, timeout=WAIT_S)
        body = {"model": "fake/tiny", "prompt": "hi", "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection


@contextlib.contextmanager
def balanced(*ports: int) -> Iterator[tuple[int, Backends]]:
    """The port of a balancer before servers at these ports."""
    backends = Backends()
    for number, port in enumerate(ports):
        backends.put(Backend(f"replica {number}", "127.0.0.1", port))
    listener = open_listener("127.0.0.1", 0, protected=False)
    ready, stop = threading.Event(), threading.Event()
    settings = {"on_ready": lambda _: ready.set(), "stop": stop, "drain_s": 0.0}
    thread = threading.Thread(target=run_server, args=(Balancer(backends), listener), kwargs=settings)
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        yield listener.getsockname()[1], backends
    finally:
        stop.set()
        thread.join(WAIT_S)
        listener.close()
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def _front() -> Iterator[Front]:
    with (
        serving(FakeService()) as one,
        serving(FakeService()) as other,
        balanced(one.port, other.port) as (port, backends),
    ):
        yield Front(Live(one.service, port), one, other, backends)


@pytest.fixture
def front(_front: Front) -> Front:
    for live in (_front.one, _front.other):
        live.service.reset()
    for backend in _front.backends.all():
        backend.ready = True
    return _front


def test_replies_are_those_of_a_replica(front: Front) -> None:
    for fields in ({"seed": 1}, {"seed": 1, "stream": True}, {"seed": 1, "max_tokens": 3, "logprobs": 2}):
        through, direct = front.door.complete("once", **fields), front.one.complete("once", **fields)
        assert through.status == direct.status == 200
        assert through.headers["content-type"] == direct.headers["content-type"]
        if "stream" in fields:
            assert [e["choices"] for e in through.events[:-1]] == [e["choices"] for e in direct.events[:-1]]
        else:
            assert through.json["choices"] == direct.json["choices"]
    refused = front.door.complete("x" * 5000)
    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
    assert front.door.ask("GET", "/v1/models/none").status == 404
    assert front.door.ask("GET", "/openapi.json").body == front.one.ask("GET", "/openapi.json").body


def test_the_least_busy_is_asked(front: Front) -> None:
    front.one.service.hold_after = 1
    first = front.stream()
    front.one.service.wait_for(lambda: front.one.service.running == 1)
    assert front.door.complete().status == 200
    assert len(front.other.service.requests) == 1
    front.one.service.release()
    assert b"[DONE]" in first.getresponse().read()
    first.close()
    assert [backend.busy for backend in front.backends.all()] == [0, 0]


def test_a_refusal_is_tried_on_another(front: Front) -> None:
    front.one.service.lose_ring()
    assert front.door.complete().status == 200
    assert len(front.other.service.requests) == 1
    front.other.service.lose_ring()
    refused = front.door.complete()
    assert refused.status == 503
    assert refused.error["type"] == "ring_unavailable"
    assert int(refused.headers["retry-after"]) > 0


def test_what_is_ready(front: Front) -> None:
    assert front.door.ask("GET", "/ready").json["replicas"] == ["replica 0", "replica 1"]
    for backend in front.backends.all():
        backend.ready = False
    front.backends.missing = "no room"
    asked = front.door.ask("GET", "/ready")
    assert (asked.status, asked.error["type"]) == (503, "ring_unavailable")
    assert "no room" in asked.error["message"]
    assert front.door.complete().status == 503
    assert front.door.ask("GET", "/health").status == 200


def test_who_hangs_up_frees_its_slot(front: Front) -> None:
    front.one.service.hold_after = 1
    connection = front.stream()
    front.one.service.wait_for(lambda: front.one.service.running == 1)
    reply = connection.getresponse()
    reply.close()
    connection.close()
    front.one.service.wait_for(lambda: not front.one.service.running)


@contextlib.contextmanager
def odd_server(answer: bytes) -> Iterator[int]:
    """A server that answers one connection so, whatever it is asked, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                sock, _ = server.accept()
                with sock:
                    sock.recv(1 << 16)
                    sock.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT_S)


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def ask(port: int) -> Answer:
    return Live(FakeService.__new__(FakeService), port).ask("GET", "/v1/models")


def test_a_stream_that_breaks_ends_by_an_error_event() -> None:
    with odd_server(EVENTS + b'd\r\ndata: {"a":1}\r\n') as broken, balanced(broken) as (port, _):
        events = ask(port).body.decode().split("\n\n")
        assert "replica was lost" in json.loads(events[-2].rpartition("data: ")[2])["error"]["message"]


def test_a_reply_that_breaks_is_no_reply() -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}"
    with odd_server(whole) as broken, balanced(broken) as (port, _), pytest.raises(http.client.HTTPException):
        ask(port)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 what\r\n\r\n"])
def test_who_does_not_answer_is_passed_over(front: Front, answer: bytes) -> None:
    with odd_server(answer) as broken, balanced(broken, front.other.port) as (port, _):
        assert ask(port).status == 200
    with balanced(broken, front.other.port) as (port, _):  # nobody listens there any more
        assert ask(port).status == 200
    with odd_server(answer) as broken, balanced(broken) as (port, _):
        assert ask(port).status == 503
