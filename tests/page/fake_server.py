"""A stand-in for rank 0's front door: the page's files, a scripted ring and scripted chat replies.

By hand: `python tests/page/fake_server.py --stages 3 --port 8010`.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ropeway
from page.fake_ring import Load, ring_at

PAGE = Path(ropeway.__file__).parent / "api" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = {"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
REPLY = (
    "A ropeway carries loads over rough ground, from station to station, and the rope runs back to where it began. "
    "This one carries hidden rows: each stage runs its own layers and hands the rows on."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer; `body` pieces are sent one by one with `pause_s` between them. `cut` drops the connection
    in the middle instead of ending it."""

    body: tuple[bytes, ...]
    status: int = 200
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0.0
    cut: bool = False


def say_json(value: object, status: int = 200, **headers: str) -> Answer:
    """A JSON answer."""
    named = {name.replace("_", "-"): each for name, each in headers.items()}
    return Answer((json.dumps(value).encode(),), status, headers=named)


def error(status: int, message: str, **headers: str) -> Answer:
    """A refusal in OpenAI's shape."""
    body = {"error": {"message": message, "type": "x", "param": None, "code": None}}
    return say_json(body, status, **headers)


def chunk(content: str | None = None, finish: str | None = None, **more: object) -> bytes:
    """One event of a streamed chat reply."""
    delta = {} if content is None else {"content": content}
    value = {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}], **more}
    value["choices"][0]["finish_reason"] = finish  # type: ignore[index]
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def stream(*events: bytes, pause_s: float = 0.0, cut: bool = False) -> Answer:
    """A streamed answer."""
    return Answer(events, type="text/event-stream", pause_s=pause_s, cut=cut)


def reply(text: str = REPLY, pause_s: float = 0.0) -> Answer:
    """A chat reply that goes well."""
    words = [word + " " for word in text.split(" ")]
    usage = {
        "prompt_tokens": 31, "completion_tokens": len(words), "total_tokens": 31 + len(words),
        "prompt_tokens_details": {"cached_tokens": 16},
    }  # fmt: skip
    last = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    return stream(*(chunk(word) for word in words), chunk(finish="stop"), last, b"data: [DONE]\n\n", pause_s=pause_s)


@dataclass(slots=True)
class Script:
    """What the fake answers, changed by a test at any time. `chats` holds what came in, newest last."""

    ring: Callable[[], Answer]
    chat: list[Answer] = field(default_factory=list)
    """Answers in turn; the last one stays."""
    key: str = ""
    chats: list[dict[str, Any]] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when a client went away in the middle of a reply."""

    def next_chat(self) -> Answer:
        """The answer to one chat request."""
        return self.chat.pop(0) if len(self.chat) > 1 else self.chat[0] if self.chat else reply()


class Handler(BaseHTTPRequestHandler):
    """Serves the script of its server."""

    server: Fake
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        script = self.server.script
        path = self.path.split("?")[0]
        if path == "/v1/ring":
            self.give(script.ring() if self.let_in(script) else error(401, "no key"))
            return
        file = PAGE / (path.lstrip("/") or "index.html")
        if file.parent != PAGE or not file.is_file():
            self.give(error(404, "no such path"))
            return
        self.give(Answer((file.read_bytes(),), type=TYPES[file.suffix], headers=POLICY))

    def do_POST(self) -> None:
        script = self.server.script
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script.chats.append(body)
        self.give(script.next_chat() if self.let_in(script) else error(401, "no key"))

    def let_in(self, script: Script) -> bool:
        """The right key came, or none is asked for."""
        return not script.key or self.headers.get("Authorization") == f"Bearer {script.key}"

    def give(self, answer: Answer) -> None:
        """Sends an answer, chunked."""
        self.send_response(answer.status)
        for name, value in {"Content-Type": answer.type, "Transfer-Encoding": "chunked", **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for piece in answer.body:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                if answer.pause_s:
                    self.server.closing.wait(answer.pause_s)
            if answer.cut:
                self.close_connection = True
                return
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.server.script.hung_up.set()
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


class Fake(ThreadingHTTPServer):
    """Listens on loopback."""

    daemon_threads = True

    def __init__(self, script: Script, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script = script
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


@contextmanager
def serving(script: Script, port: int = 0) -> Iterator[Fake]:
    """A fake that answers until the block ends."""
    fake = Fake(script, port)
    thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        fake.closing.set()
        fake.shutdown()
        thread.join()
        fake.server_close()


def living(stages: int, load: Load, sampler: str = "first", speed: float = 1.0) -> Callable[[], Answer]:
    """A ring that lives as time goes by, `speed` times as fast."""
    start = time.monotonic()
    return lambda: say_json(ring_at((time.monotonic() - start) * speed, stages, load, sampler=sampler))


def main() -> None:
    """For work on the page by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--port", type=int, default=8010)
    args = parser.parse_args()
    load = Load(streams=args.streams, rows=args.streams)
    fake = Fake(Script(living(args.stages, load), [reply(pause_s=0.03)]), args.port)
    print(fake.url)
    fake.serve_forever()


if __name__ == "__main__":
    main()
