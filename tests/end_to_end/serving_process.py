"""`ropeway serve` as a process: its ranks, questions to it, and streams that note when each event came."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from dataclasses import dataclass
from typing import Any

from end_to_end.processes import LIMIT_S, Process, Yard, children, is_alive, wait_until

LONG_REPLY = 7000
PATIENCE_S = 200.0
"""How long a stream may say nothing: a server that a test has stopped waits for other tests."""
SETTINGS = ("--context", "8192", "--parallel", "4", "--restarts", "20")
QUESTION = {"model": "small", "prompt": "hello", "temperature": 0, "logit_bias": {"0": -100, "2": -100}}
"""Whose reply does not end by itself."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply as it came."""

    status: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def is_unavailable(self) -> bool:
        """The 503 of a ring that is not whole, as it should be."""
        error = self.body.get("error", {})
        retry = int(self.headers.get("retry-after", "0"))
        return self.status == 503 and error.get("type") == "ring_unavailable" and retry > 0


class Stream:
    """A streamed completion, read in a thread of its own: its events, and when each came (time.monotonic)."""

    def __init__(self, port: int, max_tokens: int) -> None:
        self.events: list[tuple[float, dict[str, Any]]] = []
        self.said_done = False
        self.status = 0
        self.ended = threading.Event()
        self._port = port
        self._body = {**QUESTION, "max_tokens": max_tokens, "stream": True}
        threading.Thread(target=self._read, name="stream", daemon=True).start()

    @property
    def text(self) -> str:
        return "".join(event["choices"][0]["text"] for _, event in list(self.events) if event.get("choices"))

    @property
    def finishes(self) -> list[str]:
        """Every finish reason that came."""
        events = [event for _, event in self.events if event.get("choices")]
        return [reason for event in events if (reason := event["choices"][0]["finish_reason"]) is not None]

    @property
    def error(self) -> str:
        """The message of the error event that ended it; nothing where there was none."""
        last = self.events[-1][1] if self.events else {}
        return str(last["error"]["message"]) if last.get("error", {}).get("type") == "ring_unavailable" else ""

    def _read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            connection.request("POST", "/v1/completions", json.dumps(self._body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            self.status = reply.status
            for line in reply:
                if line.startswith(b"data: [DONE]"):
                    self.said_done = True
                elif line.startswith(b"data: "):
                    self.events.append((time.monotonic(), json.loads(line[6:])))
        finally:
            connection.close()
            self.ended.set()


class Server:
    """A server that has been started; every child that it was ever seen to have is remembered."""

    def __init__(self, yard: Yard, model: str, *more: str, stages: int = 2) -> None:
        flags = ("--port", "0", "--threads", "1", "--stages", str(stages), *SETTINGS, *more)
        self.process = yard.ropeway("serve", model, *flags)
        self._family: set[int] = set()

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        found: list[str] = []

        def listens(process: Process) -> bool:
            found[:] = re.findall(r"http://127\.0\.0\.1:(\d+)", process.err)
            return bool(found)

        self.process.until(listens)
        return int(found[0])

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        """Ask something; the reply is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            headers = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, headers, json.loads(reply.read()))
        finally:
            connection.close()

    def complete(self, max_tokens: int = 8) -> Answer:
        """A short completion."""
        return self.ask("POST", "/v1/completions", {**QUESTION, "max_tokens": max_tokens})

    def is_ready(self) -> bool:
        """What /ready says, which says it in one of two ways."""
        answer = self.ask("GET", "/ready")
        assert answer.status == 200 or answer.is_unavailable, answer
        return answer.status == 200

    def become_ready(self) -> None:
        """Wait until /ready says so."""
        wait_until(lambda: not self.process.running or self.is_ready(), said=self.process.said)
        assert self.process.running, self.process.said()
        self.family()

    def family(self) -> list[int]:
        """The process ids of its ranks from 1 on."""
        found = {child.args[-1]: child.pid for child in children(self.process.pid) if child.args[-1].isdigit()}
        self._family |= set(found.values())
        return [found[rank] for rank in sorted(found)]

    def left(self) -> list[int]:
        """Those of its children, of all times, that live."""
        return [pid for pid in self._family if is_alive(pid)]

    def streams(self, count: int, max_tokens: int = LONG_REPLY) -> list[Stream]:
        """So many streams, each of which has begun."""
        streams = [Stream(self.port, max_tokens) for _ in range(count)]
        wait_until(lambda: all(len(stream.events) > 5 for stream in streams), said=self.process.said)
        return streams
