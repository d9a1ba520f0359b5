"""The ring is lost, the queue is full, the client hangs up: what is told, and that nothing stays behind."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator

import openai
import pytest

from api.asking import MODEL, says, stream, text_of
from api.fake_service import WAIT_S, FakeService
from api.live import Live, serving
from ropeway.api import Settings
from ropeway.serving.sequence import Finish

MESSAGES = [{"role": "user", "content": "x"}]


@pytest.fixture
def quiet() -> Iterator[Live]:
    """A server that soon sends a sign of life."""
    with serving(FakeService(), Settings(ping_s=0.02)) as live:
        yield live


def test_a_ring_that_is_not_whole_is_a_503(client: openai.OpenAI, live: Live) -> None:
    live.service.lose_ring()
    with pytest.raises(openai.InternalServerError) as caught:
        client.completions.create(model=MODEL, prompt="x")
    assert caught.value.status_code == 503
    assert caught.value.type == "ring_unavailable"
    assert caught.value.response.headers["Retry-After"] == "3"
    live.service.restore()
    assert live.chat().status == 200


def test_a_full_queue_is_a_429(client: openai.OpenAI, live: Live) -> None:
    live.service.queue = 2
    with pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(model=MODEL, prompt="x", n=3)
    assert caught.value.response.headers["Retry-After"] == "7"
    assert caught.value.code == "queue_full"
    # What had been queued of the request is taken back.
    assert [finish for _, finish in live.service.ended] == [Finish.CANCELLED] * 2
    assert live.service.running == 0


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_that_has_sent_nothing_gets_a_503(live: Live, streamed: bool) -> None:
    live.service.hold_after = 0
    connection = _begin(live, {"stream": streamed})
    live.service.wait_for(lambda: live.service.running == 1)
    live.service.lose_ring("rank 1 was lost")
    reply = connection.getresponse()
    assert reply.status == 503
    assert reply.getheader("Retry-After") == "1"
    error = json.loads(reply.read())["error"]
    assert (error["type"], error["message"]) == ("ring_unavailable", "rank 1 was lost")
    connection.close()


def test_a_stream_that_has_sent_tokens_ends_with_an_error(client: openai.OpenAI, live: Live) -> None:
    live.service.hold_after = 3
    events = stream(client)
    chunks = [next(events) for _ in range(4)]
    live.service.lose_ring("rank 1 was lost")
    with pytest.raises(openai.APIError) as caught:
        next(events)
    assert "rank 1 was lost" in caught.value.message
    assert caught.value.type == "ring_unavailable"
    assert len(text_of(chunks)) == 3
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks)


def test_the_error_is_the_streams_last_event(live: Live) -> None:
    live.service.hold_after = 3
    connection = _begin(live, {"stream": True, "n": 2})
    reply = connection.getresponse()
    lines = [reply.readline() for _ in range(4)]
    live.service.lose_ring()
    rest = b"".join(lines) + reply.read()
    events = [line for line in rest.split(b"\n\n") if line]
    assert json.loads(events[-1].removeprefix(b"data: "))["error"]["type"] == "ring_unavailable"
    assert b"[DONE]" not in rest
    connection.close()


def test_a_completion_stream_ends_with_an_error_too(client: openai.OpenAI, live: Live) -> None:
    live.service.hold_after = 2
    events = client.completions.create(model=MODEL, prompt="x", stream=True)
    assert [next(events).choices[0].finish_reason for _ in range(2)] == [None, None]
    live.service.lose_ring()
    with pytest.raises(openai.APIError, match="rank 1"):
        next(events)


@pytest.mark.parametrize("after", [0, 5])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_client_that_hangs_up_frees_its_slots(live: Live, path: str, streamed: bool, after: int) -> None:
    live.service.hold_after = after
    connection = _begin(live, {"stream": streamed, "n": 3}, path)
    live.service.wait_for(lambda: live.service.running == 3)
    if streamed and after:
        connection.getresponse().readline()
    assert isinstance(connection.sock, socket.socket) or streamed
    connection.close()
    live.service.wait_for(lambda: len(live.service.ended) == 3)
    assert {finish for _, finish in live.service.ended} == {Finish.CANCELLED}
    assert live.service.running == 0


def test_a_client_that_closes_a_stream_frees_its_slot(client: openai.OpenAI, live: Live) -> None:
    live.service.hold_after = 4
    events = stream(client)
    next(events)
    events.close()
    live.service.wait_for(lambda: bool(live.service.ended))
    assert live.service.ended[0][1] is Finish.CANCELLED


def test_ready_is_truthful(live: Live) -> None:
    assert live.ask("GET", "/ready").status == 200
    live.service.lose_ring()
    answer = live.ask("GET", "/ready")
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.error["type"] == "ring_unavailable"
    assert "restarting" in answer.error["message"]
    assert live.ask("GET", "/health").status == 200


def _fails_at(broken: int, live: Live) -> Callable[..., bytes]:
    piece = live.service.tokenizer.piece

    def failing(token: int, *, special: bool = False) -> bytes:
        if token == broken:
            raise KeyError("no such piece")
        return piece(token, special=special)

    return failing


def _begin(live: Live, fields: dict[str, object], path: str = "/v1/chat/completions") -> http.client.HTTPConnection:
    """Send a request; its reply is read by the caller, or never."""
    asked = {"messages": MESSAGES} if "chat" in path else {"prompt": "x"}
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=WAIT_S)
    body = json.dumps({"model": MODEL, **asked, **fields})
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    return connection


def test_a_long_prompt_does_not_hold_up_the_others(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, let_go = threading.Event(), threading.Event()
    tokenize = live.service.tokenizer.tokenize

    def slow(text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        if "slow" in text:
            begun.set()
            assert let_go.wait(WAIT_S)
        return tokenize(text, add_special=add_special, parse_special=parse_special)

    monkeypatch.setattr(live.service.tokenizer, "tokenize", slow)
    connection = _begin(live, {"messages": [{"role": "user", "content": "slow"}]})
    assert begun.wait(WAIT_S)
    assert live.chat("fast").status == 200
    assert live.ask("GET", "/health").status == 200
    let_go.set()
    assert connection.getresponse().status == 200
    connection.close()


def test_a_quiet_stream_is_kept_open(quiet: Live) -> None:
    quiet.service.hold_after = 1
    connection = _begin(quiet, {"stream": True})
    reply = connection.getresponse()
    lines = iter(reply.readline, b"")
    assert next(line for line in lines if line.startswith(b":")) == b": ping\n"
    quiet.service.release()
    assert b"data: [DONE]\n" in list(lines)
    connection.close()


def test_an_error_of_our_own_is_a_500_without_its_text(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: object, on_event: object) -> int:
        raise KeyError("secret of ours")

    monkeypatch.setattr(live.service, "submit", broken)
    for answer in (live.chat(), live.chat(stream=True)):
        assert (answer.status, answer.error["type"]) == (500, "server_error")
        assert b"secret" not in answer.body
    assert "secret of ours" in caplog.text


def test_a_stream_that_we_break_ends_with_an_error(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    says(live, "abc")
    monkeypatch.setattr(live.service.tokenizer, "piece", _fails_at(ord("c"), live))
    events = live.chat(stream=True).events
    assert events[-1]["error"]["type"] == "server_error"
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None] * len(events[:-1])
    assert "no such piece" in caplog.text
    live.service.wait_for(lambda: live.service.running == 0)
