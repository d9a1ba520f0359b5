"""What a balancer lets through to its replicas: whose requests, and nothing that could be read as another request."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from api.fake_service import WAIT_S, FakeService
from api.live import Answer, Live
from api.odd import CONTEXT, OK, Odd, balanced, odd
from ropeway.api import Settings
from ropeway.api.balancer import Balancer
from ropeway.api.settings import digest
from ropeway.serving.backends import Backend, Backends

KEY, INNER = "sk-of-a-client-1", "of-the-replica-1"
JSON = b"Content-Type: application/json\r\n"
HOST = b"Host: localhost\r\n"


@pytest.fixture
def replica() -> Iterator[Odd]:
    with odd(OK) as server:
        yield server


def ask(port: int, method: str = "GET", path: str = "/v1/models", body: Any = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Live(FakeService.__new__(FakeService), port).ask(method, path, body, named)


def say(port: int, *pieces: bytes) -> bytes:
    """Say this on one connection; all that is answered until it is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as sock:
        for piece in pieces:
            sock.sendall(piece)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := sock.recv(1 << 16):
                answer += piece
        return answer


def headers_of(request: bytes) -> list[tuple[str, str]]:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]


def test_keys_are_asked_for_here_and_stay_here(replica: Odd) -> None:
    settings = Settings((digest(KEY),))
    with balanced(replica.port, settings=settings, key=INNER) as (port, _):
        assert ask(port).status == 401
        assert ask(port, authorization="Bearer sk-of-nobody-1").status == 401
        assert ask(port, authorization=f"Bearer {INNER}").status == 401
        assert ask(port, path="/v1%2Fmodels").status == 401
        assert not replica.heard
        assert ask(port, authorization=f"Bearer {KEY}").status == 200
        assert ask(port, path="/").status == 200
    for request in replica.heard:
        assert KEY.encode() not in request
        assert [value for name, value in headers_of(request) if name == "authorization"] == [f"Bearer {INNER}"]


def test_a_page_that_calls_us_by_a_name_of_its_own_is_refused(replica: Odd) -> None:
    with balanced(replica.port, settings=Settings(hosts=frozenset({"localhost"}))) as (port, _):
        for path in ("/v1/models", "/ready", "/health", "/"):
            assert ask(port, path=path, host="evil.example").status == 421
            assert ask(port, path=path, host=f"localhost:{port}").status == 200
    assert len(replica.heard) == 2


def test_bodies_that_are_too_large_or_too_slow(replica: Odd) -> None:
    settings = Settings(max_body_bytes=1000, body_timeout_s=0.2)
    with balanced(replica.port, settings=settings) as (port, _):
        assert ask(port, "POST", "/v1/completions", b"x" * 1001).status == 413
        begun = b"POST /v1/completions HTTP/1.1\r\n" + HOST
        chunked = begun + b"Transfer-Encoding: chunked\r\n\r\n"
        assert say(port, chunked, b"3e9\r\n" + b"x" * 1001 + b"\r\n").startswith(b"HTTP/1.1 413")
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as sock:
            sock.sendall(begun + b"Content-Length: 10\r\n\r\nabc")
            assert sock.recv(1 << 16).startswith(b"HTTP/1.1 408")
        assert not replica.heard
        assert ask(port, "POST", "/v1/completions", b"x" * 1000).status == 200


POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST + JSON + b"Connection: close, X-Mine\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\n\r\n"
NOT_HTTP = {
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 20\r\n\r\n{}" + SMUGGLED,
    "two lengths in one": POST + b"Content-Length: 2, 20\r\n\r\n{}" + SMUGGLED,
    "a signed length": POST + b"Content-Length: +2\r\n\r\n{}" + SMUGGLED,
    "an odd coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "a space before the colon": POST + b"Content-Length : 2\r\n\r\n{}" + SMUGGLED,
    "a bare CR": POST + b"X-A: b\rContent-Length: 2\r\n\r\n{}" + SMUGGLED,
    "a NUL": POST + b"X-A: b\0c\r\nContent-Length: 2\r\n\r\n{}" + SMUGGLED,
    "a space in the target": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "a whole URL": b"GET http://other/v1/models HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
}


@pytest.mark.parametrize("name", NOT_HTTP)
def test_what_can_be_read_in_two_ways_is_refused(replica: Odd, name: str) -> None:
    with balanced(replica.port) as (port, _):
        assert say(port, NOT_HTTP[name]).startswith(b"HTTP/1.1 400 ")
    assert not replica.heard


def test_framing_is_made_anew(replica: Odd) -> None:
    with balanced(replica.port) as (port, _):
        both = POST + b"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        say(port, both)
        more = b"X-Mine: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
        say(port, POST + more + b"X-Kept: 1\r\nContent-Length: 2\r\n\r\n{}")
        say(port, POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"{}")
    names = {"host", "content-type", "content-length", "connection"}
    assert [{name for name, _ in headers_of(one)} for one in replica.heard] == [names, names | {"x-kept"}, names]
    for one in replica.heard:
        assert one.startswith(b"POST /v1/completions HTTP/1.1\r\n")
        assert one.endswith(b"\r\n\r\n{}")
        kept = headers_of(one)
        assert ("content-length", "2") in kept
        assert ("connection", "close") in kept
        assert len(kept) == len({name for name, _ in kept})


def test_a_target_goes_on_as_it_was_judged(replica: Odd) -> None:
    with balanced(replica.port) as (port, _):
        for path in ("/v1/%0d%0aX-A:%20b", "/a%20b?c=%0d%0a&d=e%20f", "/%E2%82%AC/..%2f", "/?a=/?b"):
            ask(port, path=path)
    targets = [one.split(b" ")[1] for one in replica.heard]
    assert targets == [b"/v1/%0D%0AX-A:%20b", b"/a%20b?c=%0d%0a&d=e%20f", b"/%E2%82%AC/../", b"/?a=/?b"]


@pytest.mark.parametrize(
    "part",
    [
        {"headers": [(b"x-a", b"b\r\nx-b: c")]},
        {"headers": [(b"x-a\nx-b", b"c")]},
        {"query_string": b"a=b HTTP/1.1\r\nx: y"},
        {"path": "*"},
    ],
)
def test_a_server_that_lets_such_things_through_changes_nothing(replica: Odd, part: dict[str, Any]) -> None:
    """Whatever parses requests before us: heads are checked here too."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        said.append(message)

    backends = Backends()
    backends.put(Backend("replica 0", "127.0.0.1", replica.port))
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [], **part}
    asyncio.run(Balancer(backends, Settings(), CONTEXT)(scope, receive, send))
    assert said[0]["status"] == 400
    assert not replica.heard


def test_one_connection_takes_many_requests(replica: Odd) -> None:
    with balanced(replica.port) as (port, _):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection:
            for _ in range(3):
                connection.request("POST", "/v1/completions", b"{}")
                reply = connection.getresponse()
                assert (reply.status, reply.read()) == (200, b"{}")
                assert len(reply.headers.get_all("date", [])) == 1
        one = b"GET /v1/models HTTP/1.1\r\n" + HOST
        assert say(port, one + b"\r\n" + one + b"Connection: close\r\n\r\n").count(b"HTTP/1.1 200") == 2
    assert len(replica.heard) == 5


def test_the_whole_body_goes_on(replica: Odd) -> None:
    body = json.dumps({"prompt": "x" * 900_000}).encode()
    with balanced(replica.port) as (port, _):
        assert ask(port, "POST", "/v1/completions", body).status == 200
    assert replica.heard[0].endswith(b"\r\n\r\n" + body)
