"""One address before two replicas: who is asked, what is tried elsewhere, and what a client sees of a loss."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from api.fake_service import WAIT_S, FakeService
from api.live import Answer, Live, serving
from api.odd import EVENTS, OK, balanced, odd
from ropeway.serving.backends import Backends


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
    front.one.service.wait_for(lambda: not any(backend.busy for backend in front.backends.all()))


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


def ask(port: int, method: str = "GET", path: str = "/v1/models", body: object = None) -> Answer:
    return Live(FakeService.__new__(FakeService), port).ask(method, path, body)


def test_who_hangs_up_before_there_is_a_reply_frees_its_slot(front: Front) -> None:
    front.one.service.hold_after = 1
    connection = http.client.HTTPConnection("127.0.0.1", front.door.port, timeout=WAIT_S)
    body = json.dumps({"model": "fake/tiny", "prompt": "hi"})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    front.one.service.wait_for(lambda: front.one.service.running == 1)
    connection.close()
    front.one.service.wait_for(lambda: not front.one.service.running)


def test_replies_without_a_body(front: Front) -> None:
    for path in ("/v1/models", "/"):
        head = front.door.ask("HEAD", path)
        assert (head.status, head.body) == (front.one.ask("HEAD", path).status, b"")
    nothing = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n"
    with odd(nothing) as server, balanced(server.port) as (port, _):
        assert ask(port).status == 304


def test_a_stream_that_breaks_ends_by_an_error_event_and_shows_no_half_one() -> None:
    with (
        odd(EVENTS + b'f\r\ndata: {"a":1}\n\n\r\n8\r\ndata: {"\r\n') as server,
        balanced(server.port) as (port, _),
    ):
        whole, last = ask(port).events
        assert whole == {"a": 1}
        assert (last["error"]["type"], "replica was lost" in last["error"]["message"]) == ("ring_unavailable", True)


def test_a_reply_that_breaks_is_tried_on_another(front: Front) -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}"
    with odd(half) as server:
        with balanced(server.port, front.other.port) as (port, _):
            assert ask(port).json["object"] == "list"
        with balanced(server.port) as (port, _):
            assert ask(port).error["type"] == "ring_unavailable"


BROKEN = {
    "nothing": b"",
    "another protocol": b"SSH-2.0-OpenSSH\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\n",
    "no status": b"HTTP/1.1 what\r\n\r\n",
    "no reason": b"HTTP/1.1\r\n\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 40_000,
    "no length": b"HTTP/1.1 200 OK\r\n\r\n{}",
    "a length below zero": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
    "a chunk below zero": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n",
    "a chunk of no size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nwhat\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_who_does_not_answer_is_passed_over(front: Front, name: str) -> None:
    with odd(BROKEN[name]) as server:
        with balanced(server.port, front.other.port) as (port, _):
            assert ask(port).status == 200
        with balanced(server.port) as (port, _):
            assert ask(port).status == 503


def test_who_is_not_there_is_asked_no_more_until_it_was_seen_again(front: Front) -> None:
    with odd(OK) as server:
        pass
    with balanced(server.port, front.other.port) as (port, backends):
        assert ask(port).status == 200
        assert [backend.ready for backend in backends.all()] == [False, True]


def test_what_only_announces_a_reply_is_none() -> None:
    with odd(b"HTTP/1.1 100 Continue\r\n\r\n" + OK) as server, balanced(server.port) as (port, _):
        assert ask(port).json == {}


def test_who_hangs_is_asked_no_more_once_it_is_taken_out(front: Front) -> None:
    with odd(b"", hold=True) as server, balanced(server.port, front.other.port) as (port, backends):
        hung = backends.all()[0]

        def take_out() -> None:
            server.asked.wait(WAIT_S)
            backends.take_out(hung, "it hangs")

        taker = threading.Thread(target=take_out)
        taker.start()
        assert ask(port).status == 200
        taker.join()
        assert server.hung_up.wait(WAIT_S)


def test_a_stream_ends_when_its_replica_is_taken_out() -> None:
    with odd(EVENTS + b'f\r\ndata: {"a":1}\n\n\r\n', hold=True) as server, balanced(server.port) as (port, backends):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection:
            connection.request("GET", "/v1/models")
            reply = connection.getresponse()
            assert reply.readline() == b'data: {"a":1}\n'
            backends.take_out(backends.all()[0], "its cable was pulled")
            assert (
                "its cable was pulled" in json.loads(reply.read().strip().removeprefix(b"data: "))["error"]["message"]
            )
        assert server.hung_up.wait(WAIT_S)
        assert "its cable was pulled" in ask(port).error["message"]


def test_a_slow_client_slows_its_replica_down() -> None:
    with (
        odd(EVENTS, flood=True) as server,
        balanced(server.port) as (port, _),
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection,
    ):
        connection.request("GET", "/v1/models")
        connection.getresponse()
        assert server.blocked.wait(6 * WAIT_S), "what nobody reads is being kept somewhere"
        assert server.sent < 64 << 20
