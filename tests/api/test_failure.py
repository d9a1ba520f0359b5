"""The ring is lost, the queue is full, the client hangs up: what is told, and that nothing stays behind."""

from __future__ import annotations

import http.client
import json
import socket

import openai
import pytest

from api.asking import MODEL, stream, text_of
from api.fake_service import WAIT_S
from api.live import Live
from ropeway.serving.sequence import Finish

MESSAGES = [{"role": "user", "content": "x"}]


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


def _begin(live: Live, fields: dict[str, object], path: str = "/v1/chat/completions") -> http.client.HTTPConnection:
    """Send a request; its reply is read by the caller, or never."""
    asked = {"messages": MESSAGES} if "chat" in path else {"prompt": "x"}
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=WAIT_S)
    body = json.dumps({"model": MODEL, **asked, **fields})
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    return connection
