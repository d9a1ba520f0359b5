"""What every request passes first: keys, hosts, sizes, types, times."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from api.fake_service import WAIT_S, FakeService
from api.live import Live, serving
from ropeway.api import Settings, read_api_keys
from ropeway.api.settings import LOOPBACK_NAMES, digest

KEY = "sk-first-key-0001"
OTHER = "sk-other-key-0002"


@pytest.fixture(scope="module")
def _guarded() -> Iterator[Live]:
    settings = Settings(
        api_keys=(digest(KEY), digest(OTHER)), hosts=LOOPBACK_NAMES, max_body_bytes=2000, body_timeout_s=0.2
    )
    with serving(FakeService(), settings) as live:
        yield live


@pytest.fixture
def guarded(_guarded: Live) -> Live:
    """A server with two keys, small bodies and a short time for them."""
    _guarded.service.reset()
    return _guarded


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/x", "/v1/ring", "/metrics", "/v1/nothing"])
def test_a_key_is_asked_for(guarded: Live, path: str) -> None:
    missing = guarded.ask("GET", path)
    assert (missing.status, missing.error["code"]) == (401, "missing_api_key")
    assert missing.headers["www-authenticate"] == "Bearer"
    for wrong in ("Bearer ", "Bearer x", f"Basic {KEY}", KEY, f"Bearer {KEY}x", "Bearer \xe9"):
        answer = guarded.ask("GET", path, headers={"Authorization": wrong})
        assert (answer.status, answer.error["type"]) == (401, "authentication_error")
        assert KEY not in answer.body.decode()
    for right in (KEY, OTHER):
        assert guarded.ask("GET", path, headers={"Authorization": f"Bearer {right}"}).status != 401


def test_probes_and_the_page_need_no_key(guarded: Live) -> None:
    for path in ("/health", "/ready", "/openapi.json"):
        assert guarded.ask("GET", path).status == 200
    assert guarded.ask("GET", "/").status in (200, 404)


def test_the_client_sends_the_key(guarded: Live) -> None:
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=OTHER, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == [guarded.service.model_id]
    wrong = openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="sk-wrong-key", max_retries=0)
    with wrong as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_a_foreign_host_is_refused(guarded: Live) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert guarded.ask("GET", "/health", headers={"Host": host}).status == 421
    for host in ("localhost", f"LOCALHOST:{guarded.port}", "[::1]:80", "[::1]", "127.0.0.1"):
        assert guarded.ask("GET", "/health", headers={"Host": host}).status == 200


def test_a_large_body_is_refused(guarded: Live) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = guarded.ask("POST", "/v1/completions", b"x" * 2001, headers)
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")
    assert guarded.ask("POST", "/v1/completions", b"x" * 2000, headers).status == 400
    chunked = {**headers, "Transfer-Encoding": "chunked"}
    body = b"7d0\r\n" + b"x" * 2000 + b"\r\n1\r\nx\r\n0\r\n\r\n"
    assert _raw(guarded, chunked, body).startswith(b"HTTP/1.1 413 ")


def test_a_slow_body_is_cut_off(guarded: Live) -> None:
    reply = _raw(guarded, {"Authorization": f"Bearer {KEY}", "Content-Length": "100"}, b"{")
    assert reply.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_only_json_is_taken(live: Live, kind: str) -> None:
    answer = live.ask("POST", "/v1/completions", b"{}", {"Content-Type": kind})
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
    assert live.ask("POST", "/v1/completions", b"{}", {"Content-Encoding": "gzip"}).status == 415
    assert live.ask("POST", "/v1/completions", b"{}", {"Content-Type": "Application/JSON; charset=utf-8"}).status == 400


def test_unknown_paths_and_methods(live: Live) -> None:
    for method, path, status in (
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
    ):
        answer = live.ask(method, path, b"{}" if method == "POST" else None)
        assert answer.status == status, (method, path)
        assert answer.error["type"] == "invalid_request_error"


def test_every_reply_names_itself_and_the_placement(live: Live) -> None:
    for answer in (live.chat(), live.chat(stream=True), live.chat(n=0), live.ask("GET", "/nothing")):
        assert answer.headers["x-ropeway-placement"] == live.service.fingerprint
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


def test_keys_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# the keys\n{KEY}\n\n  {OTHER}  \n")
    keys = read_api_keys(path)
    assert keys == (digest(KEY), digest(OTHER))
    assert KEY not in repr(Settings(api_keys=keys))
    assert keys[0].hex() not in repr(Settings(api_keys=keys))


@pytest.mark.parametrize("text", ["", "# none\n", "short\n", "has a blank in it\n", "schlüssel-lang\n"])
def test_a_bad_key_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="api-key") as caught:
        read_api_keys(path)
    for line in text.splitlines():
        assert line not in str(caught.value).replace(str(path), "").replace("shorter", "")


def _raw(live: Live, headers: dict[str, str], body: bytes) -> bytes:
    """A POST written by hand; what comes back until the server closes."""
    lines = [f"{name}: {value}" for name, value in {"Content-Type": "application/json", **headers}.items()]
    head = "\r\n".join(["POST /v1/completions HTTP/1.1", "Host: localhost", *lines, "", ""])
    with contextlib.closing(socket.create_connection(("127.0.0.1", live.port), timeout=WAIT_S)) as sock:
        sock.sendall(head.encode() + body)
        reply = b""
        while data := sock.recv(65536):
            reply += data
        return reply
