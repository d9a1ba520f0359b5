"""The client against a service on loopback: shapes, errors by what they leave behind, and where the key goes."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ropeway.launch.provider import Denied, NotDone, Offer, Order, Refused, State, Unclear, Wanted
from ropeway.launch.vastai import VastAi
from smoke.fake_rented import KEY, SLEEPER
from smoke.fake_vast import FakeVast, fake_vast

OFFER = Offer(4100, 90, 0.05)
ORDER = Order("ropeway/test", 40, "run-1/0", {"STAGE": "0", "SEED_ADDR": "a secret"})


@pytest.fixture
def fake() -> Iterator[FakeVast]:
    with fake_vast() as service:
        service.moods.command = SLEEPER
        yield service


@pytest.fixture
def client(fake: FakeVast) -> Iterator[VastAi]:
    with VastAi(KEY, fake.url, timeout_s=5.0, sleep=lambda _: None) as made:
        yield made


class Scripted:
    """A service that says whatever a test wants it to."""

    def __init__(self) -> None:
        script: deque[tuple[int, bytes, dict[str, str]]] = deque()
        asked: list[tuple[str, str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.command, self.path, dict(self.headers)))
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                status, body, headers = script.popleft()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 (http.server's names)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing on standard error."""

        self.script, self.asked = script, asked
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def say(self, value: Any, status: int = 200, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.script.append((status, body, headers))


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def told(scripted: Scripted) -> Iterator[VastAi]:
    with VastAi(KEY, scripted.url, timeout_s=2.0, sleep=lambda _: None) as made:
        yield made


def test_the_life_of_an_instance(fake: FakeVast, client: VastAi) -> None:
    offers = client.search(Wanted(2))
    assert [offer.price for offer in offers] == [0.05, 0.06, 0.07, 0.08]
    assert (offers[0].gpu, offers[0].location, offers[0].machine) == ("RTX 3060", "Sweden, SE", 90)
    instance = client.create(offers[0], ORDER)
    states = [found.state for _ in range(3) if (found := client.status(instance)) is not None]
    assert states == [State.COMING, State.COMING, State.RUNNING]
    assert [found.id for found in client.list_run("run-1")] == [instance]
    assert client.list_run("run") == ()
    fake.until(lambda: fake.ever[0].said())
    assert client.logs(instance) == "a container that does nothing"
    client.destroy(instance)
    assert client.status(instance) is None
    client.destroy(instance)
    assert fake.rented == []


def test_an_instance_whose_process_has_ended(fake: FakeVast, client: VastAi) -> None:
    fake.moods.command = ("false",)
    instance = client.create(OFFER, ORDER)
    fake.until(lambda: fake.ever[0].process is not None and fake.ever[0].process.poll() is not None)
    found = client.status(instance)
    assert found is not None
    assert (found.state, found.status) == (State.ENDED, "exited")


@pytest.mark.parametrize(
    ("mood", "error", "words"),
    [
        ("gone", Refused, "no_such_ask"),
        ("refused", Refused, "the image is not a name"),
        ("denied", Denied, "no credit"),
        ("busy", NotDone, "API requests too frequent"),
        ("broken", Unclear, "504"),
    ],
)
def test_a_create_that_does_not_come_off(
    fake: FakeVast, client: VastAi, mood: str, error: type[Exception], words: str
) -> None:
    fake.moods.creates = deque([mood])
    with pytest.raises(error, match=words) as caught:
        client.create(OFFER, ORDER)
    assert type(caught.value) is error
    assert "a secret" not in str(caught.value)


def test_a_create_that_is_not_answered_is_unclear(fake: FakeVast) -> None:
    fake.moods.creates = deque(["lost"])
    with VastAi(KEY, fake.url, timeout_s=0.5) as client, pytest.raises(Unclear, match=r"no answer within 0.5 s"):
        client.create(OFFER, ORDER)
    assert len(fake.rented) == 1


def test_a_service_that_cannot_be_reached_has_done_nothing(scripted: Scripted) -> None:
    scripted.server.shutdown()
    scripted.server.server_close()
    with VastAi(KEY, scripted.url, timeout_s=2.0) as client, pytest.raises(NotDone, match="cannot be reached"):
        client.create(OFFER, ORDER)


def test_another_key_is_denied(fake: FakeVast) -> None:
    with VastAi("another-key", fake.url) as client, pytest.raises(Denied, match="the key is not accepted") as caught:
        client.search(Wanted(2))
    assert "another-key" not in str(caught.value)


@pytest.mark.parametrize(
    "said",
    [b"", b"<html>", b"[]", b"null", b'{"offers": 7}', b'{"offers": null}', b"\xff\xfe", b'{"success": true}'],
)
def test_an_answer_of_another_shape_is_unclear(scripted: Scripted, told: VastAi, said: bytes) -> None:
    scripted.say(said)
    with pytest.raises(Unclear):
        told.search(Wanted(2))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"success": True},
        {"success": True, "new_contract": None},
        {"success": True, "new_contract": "7"},
        {"success": True, "new_contract": True},
        {"success": "yes", "new_contract": 7},
        {"new_contract": 7},
    ],
)
def test_a_create_whose_answer_says_nothing_is_unclear(
    scripted: Scripted, told: VastAi, said: dict[str, object]
) -> None:
    scripted.say(said)
    with pytest.raises(Unclear, match="neither a contract nor a refusal"):
        told.create(OFFER, ORDER)


def test_null_means_that_there_is_no_such_instance(scripted: Scripted, told: VastAi) -> None:
    scripted.say({"instances": None})
    assert told.status(5) is None


def test_a_list_with_an_instance_that_cannot_be_read_is_unclear(scripted: Scripted, told: VastAi) -> None:
    scripted.say({"instances": [{"label": "run-1/0"}]})
    with pytest.raises(Unclear):
        told.list_run("run-1")


def test_the_key_does_not_follow_to_where_the_log_is_nor_to_another_host(scripted: Scripted, told: VastAi) -> None:
    scripted.say({"result_url": f"{scripted.url}/elsewhere"})
    scripted.say(b"not yet", 404)
    scripted.say(b"what \x1b[31mit\x00 said " + KEY.encode())
    assert told.logs(5) == "what  [31mit  said ***"
    assert [KEY in str(headers) for _, _, headers in scripted.asked] == [True, False, False]

    scripted.say({"result_url": "http://example.org/log"})
    with pytest.raises(Refused, match="neither https"):
        told.logs(5)

    scripted.say({}, 302, Location="http://example.org/api/v0/instances/")
    with pytest.raises(Unclear, match="302"):
        told.list_run("run-1")


def test_a_log_is_cut_and_any_other_reply_has_a_limit(
    scripted: Scripted, told: VastAi, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.say({"result_url": f"{scripted.url}/log"})
    scripted.say(b"x" * 200_000 + b" the end")
    log = told.logs(5)
    assert len(log) == 64 << 10
    assert log.endswith("the end")
    monkeypatch.setattr("ropeway.launch.vastai.REPLY_BYTES", 1000)
    scripted.say(b" " * 2000)
    with pytest.raises(Unclear, match="the connection failed"):
        told.list_run("run-1")


def test_what_the_service_says_is_shown_without_the_key_and_without_control_characters(
    scripted: Scripted, told: VastAi
) -> None:
    scripted.say({"error": "bad \x1b]0;title\x07", "msg": f"your key {KEY} " + "x" * 1000}, 400)
    with pytest.raises(Refused) as caught:
        told.create(OFFER, ORDER)
    assert KEY not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_destroy_that_says_no_is_not_taken_for_done(scripted: Scripted, told: VastAi) -> None:
    scripted.say({"success": False, "msg": "later"})
    with pytest.raises(Unclear, match="later"):
        told.destroy(5)


def test_creates_are_paced(fake: FakeVast) -> None:
    slept: list[float] = []
    with VastAi(KEY, fake.url, sleep=slept.append) as client:
        client.create(OFFER, ORDER)
        fake._last_create = 0.0
        client.create(Offer(4101, 91, 0.06), ORDER)
    assert len(slept) == 1
    assert 0.3 < slept[0] <= 0.6


@pytest.mark.parametrize(
    "server",
    ["http://example.org", "http://10.0.0.1:80", "ftp://127.0.0.1", "example.org", "https://", "https://me:pw@host"],
)
def test_a_server_that_would_see_the_key_in_clear_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match="server-url"):
        VastAi(KEY, server)


@pytest.mark.parametrize("key", ["", "two words", "line\n", "schlüssel"])
def test_what_is_no_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError, match="api-key") as caught:
        VastAi(key)
    assert not key or key not in str(caught.value)


def test_the_key_is_in_no_representation(client: VastAi) -> None:
    assert KEY not in repr(client)
    assert "a secret" not in repr(ORDER)


def test_a_command_for_people_names_the_instance_and_not_the_key(client: VastAi, fake: FakeVast) -> None:
    command = client.destroy_command(7001)
    assert command == f'curl -X DELETE -H "Authorization: Bearer $VAST_API_KEY" {fake.url}/api/v0/instances/7001/'
