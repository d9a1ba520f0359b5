"""A live server on loopback for tests: uvicorn in a thread, on a port of its own choosing."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.fake_service import WAIT_S, FakeService
from ropeway.api import Settings, create_app, open_listener, run_server


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply: status, headers in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error in OpenAI's shape, its keys checked."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error, dict)
        return error

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events, JSON read, [DONE] as it is."""
        assert self.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in self.body.decode().split("\n\n") if line and not line.startswith(":")]
        data = [line.removeprefix("data: ") for line in lines]
        return [item if item == "[DONE]" else json.loads(item) for item in data]


@dataclass(frozen=True, slots=True)
class Live:
    """A running server and the service behind it."""

    service: FakeService
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """One request on a connection of its own. A body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        with contextlib.closing(connection):
            connection.request(method, path, data, {**sent, **self.headers, **(headers or {})})
            reply = connection.getresponse()
            found = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, found, reply.read())

    def chat(self, text: str = "hi", **fields: Any) -> Answer:
        """One user message."""
        body = {"model": self.service.model_id, "messages": [{"role": "user", "content": text}], **fields}
        return self.ask("POST", "/v1/chat/completions", body)

    def complete(self, prompt: Any = "hi", **fields: Any) -> Answer:
        """A text completion."""
        return self.ask("POST", "/v1/completions", {"model": self.service.model_id, "prompt": prompt, **fields})


@contextlib.contextmanager
def serving(service: FakeService, settings: Settings | None = None) -> Iterator[Live]:
    """A server for as long as the context lasts; the service is closed with it."""
    listener = open_listener("127.0.0.1", 0, protected=False)
    ready, stop = threading.Event(), threading.Event()
    app = create_app(service, settings or Settings())
    thread = threading.Thread(
        target=run_server, args=(app, listener), kwargs={"on_ready": lambda _: ready.set(), "stop": stop}
    )
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        yield Live(service, listener.getsockname()[1])
    finally:
        service.release()
        stop.set()
        thread.join(WAIT_S)
        service.close()
        listener.close()
        assert not thread.is_alive()
