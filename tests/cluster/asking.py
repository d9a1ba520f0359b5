"""A server on a host, as its clients see it: /ready, short replies, streams that note when their end came."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from cluster.hosts import Host, Village
from end_to_end.processes import LIMIT_S, Process, wait_until

PORT = 8000
PATIENCE_S = 60.0
QUESTION = {"model": "m", "prompt": "hello", "temperature": 0, "logit_bias": {"0": -100, "2": -100}}
"""Whose reply does not end by itself."""
FLAGS = ("--model-id", "m", "--threads", "1", "--context", "8192", "--parallel", "4")


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply."""

    status: int
    body: dict[str, Any]

    @property
    def text(self) -> str:
        return str(self.body["choices"][0]["text"])

    @property
    def detail(self) -> str:
        """Why there is none."""
        return str(self.body["error"]["message"])


def headers_of(key: str) -> dict[str, str]:
    """A request's, with the API's key where there is one."""
    return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})


class Server:
    """`ropeway serve MODEL --cluster` on a host; or, with `local`, the same ring over TCP in processes there."""

    key = ""
    """The API's, where there is one."""

    def __init__(self, village: Village, host: Host, stages: int, *more: str, local: bool = False) -> None:
        self.host = host
        self.port = PORT + local
        flags = (*FLAGS, "--stages", str(stages), "--port", str(self.port), *more, *(() if local else ("--cluster",)))
        self.process: Process = village.ropeway(host, "serve", village.model, *flags)
        self.process.until(lambda process: "http://" in process.err)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        """Ask something."""
        connection = self.host.connect(self.port, PATIENCE_S)
        try:
            connection.request(method, path, json.dumps(body or {}), headers_of(self.key))
            reply = connection.getresponse()
            return Answer(reply.status, json.loads(reply.read()))
        finally:
            connection.close()

    def complete(self, max_tokens: int = 24) -> Answer:
        """A short completion."""
        return self.ask("POST", "/v1/completions", {**QUESTION, "max_tokens": max_tokens})

    def logprobs(self) -> object:
        """Every log-probability of a short completion, to the last bit."""
        answer = self.ask("POST", "/v1/completions", {**QUESTION, "max_tokens": 24, "logprobs": 5})
        return answer.body["choices"][0]["logprobs"]

    def is_ready(self) -> bool:
        """What /ready says; `Watcher` holds it against what follows."""
        return self.ask("GET", "/ready").status == 200

    def wait(self, ready: bool = True) -> None:
        """Wait until /ready says so."""
        wait_until(lambda: self.is_ready() is ready, LIMIT_S, self.process.said)

    def nodes(self) -> list[str]:
        """The labels of the nodes in the ring, in its order."""
        stages = self.ask("GET", "/v1/ring").body["stages"]
        return [str(stage["address"]).partition(":")[0] for stage in stages]

    def stream(self, max_tokens: int = 8000) -> Stream:
        """A long reply, begun."""
        stream = Stream(self.host, max_tokens, self.key)
        wait_until(lambda: stream.pieces > 3 or stream.ended.is_set(), said=self.process.said)
        assert not stream.ended.is_set(), self.process.said()
        return stream


class Stream:
    """A streamed completion, read in a thread of its own."""

    def __init__(self, host: Host, max_tokens: int, key: str = "") -> None:
        self.pieces = 0
        self.text = ""
        self._max_tokens = max_tokens
        self._key = key
        self.finish = ""
        self.error = ""
        self.said_done = False
        self.ended = threading.Event()
        self.ended_at = 0.0
        self._connection = host.connect(PORT, PATIENCE_S)
        threading.Thread(target=self._read, name="stream", daemon=True).start()

    def _read(self) -> None:
        body = json.dumps({**QUESTION, "max_tokens": self._max_tokens, "stream": True})
        try:
            self._connection.request("POST", "/v1/completions", body, headers_of(self._key))
            for line in self._connection.getresponse():
                self._hear(line)
        except (OSError, http.client.HTTPException) as error:
            self.error = f"the connection broke: {error!r}"
        finally:
            self.ended_at = time.monotonic()
            self.ended.set()
            self._connection.close()

    def _hear(self, line: bytes) -> None:
        if line.startswith(b"data: [DONE]"):
            self.said_done = True
        elif line.startswith(b"data: "):
            event = json.loads(line[6:])
            if "error" in event:
                self.error = str(event["error"]["type"])
            elif event["choices"]:
                self.pieces += 1
                self.text += event["choices"][0]["text"]
                self.finish = event["choices"][0]["finish_reason"] or self.finish


class Watcher:
    """A client that never rests, from one loss to the next ring: it asks /ready, then for a short reply, and again.

    Each answer must come, as a reply or as a retryable 503; and /ready must be true: where it has just said yes, only
    as many replies may fail as `losses` have cut.
    """

    def __init__(self, server: Server, losses: int = 1) -> None:
        self._server = server
        self._losses = losses
        self._over = threading.Event()
        self._seen: list[tuple[int, int]] = []
        self._broken: list[str] = []
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
        if kind is None:
            said = self._server.process.said()
            assert not self._thread.is_alive(), f"a request hangs\n{said}"
            assert not self._broken, f"{self._broken}\n{said}"
            assert {reply for _, reply in self._seen} <= {200, 503}, said
            lies = sum(ready == 200 and reply != 200 for ready, reply in self._seen)
            assert lies <= self._losses, f"/ready said yes, and {lies} replies failed: {self._seen}\n{said}"

    def _run(self) -> None:
        try:
            while not self._over.wait(0.05):
                ready = self._server.ask("GET", "/ready").status
                self._seen.append((ready, self._server.complete(2).status))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._broken.append(repr(error))
