"""A web server on loopback that speaks ranges, and fails as it is told: every fault that a fetch must stand."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(slots=True)
class Answer:
    """What a fault does to one answer: another status with headers, or a body that is cut off or stalls after some
    bytes."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_after: int | None = None
    stall_after: int | None = None
    whole: bool = False


@dataclass(slots=True)
class Asked:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    port: int = 0
    sent: int = 0


Fault = Callable[[Asked], Answer | None]


@dataclass(slots=True)
class Site:
    """The files of a server by path, the requests that came, and the faults, each asked in turn about each request."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    ranges: bool = True
    etags: bool = True
    url: str = ""
    stalled: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def sent(self) -> int:
        """Bytes of bodies sent so far."""
        return sum(asked.sent for asked in self.asked)

    def once(self, answer: Answer, path: str = "") -> None:
        """Give `answer` to the next request (of `path`), then go on as before."""
        self.times(1, answer, path)

    def times(self, count: int, answer: Answer, path: str = "") -> None:
        """The same for the next `count` requests."""
        left = [count]

        def fault(asked: Asked) -> Answer | None:
            if left[0] <= 0 or (path and asked.path != path):
                return None
            left[0] -= 1
            return answer

        self.faults.append(fault)


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """The site on a port of its own; `site.url` is where, without a slash at its end."""

    class Handler(_Handler):
        of = site

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        site.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    of: Site
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True  # who asked has gone away

    def do_GET(self) -> None:
        site = self.of
        asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, self.client_address[1])
        site.asked.append(asked)
        answer = next((found for fault in site.faults if (found := fault(asked))), Answer())
        if answer.status:
            self._send(asked, answer.status, dict(answer.headers), answer.body, answer)
            return
        content = site.files.get(self.path)
        if content is None:
            self._send(asked, 404, {}, b"there is no such file", answer)
            return
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:20]}"'} if site.etags else {}
        headers |= dict(answer.headers)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", asked.headers.get("range", ""))
        if wanted is None or not site.ranges or answer.whole:
            self._send(asked, 200, headers, content, answer)
            return
        first, last = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
        if first > last:
            self._send(asked, 416, {"Content-Range": f"bytes */{len(content)}"}, b"", answer)
            return
        headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}"} | headers
        self._send(asked, 206, headers, content[first : last + 1], answer)

    def _send(self, asked: Asked, status: int, headers: dict[str, str], body: bytes, answer: Answer) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            if value or name != "Content-Length":
                self.send_header(name, value)
        self.end_headers()
        part = body[: answer.cut_after if answer.stall_after is None else answer.stall_after]
        for at in range(0, len(part), 4096):
            asked.sent += len(part[at : at + 4096])  # before who asked can have it
            self.wfile.write(part[at : at + 4096])
        if answer.stall_after is not None:
            self.of.stalled.set()
            self.of.closing.wait(60)
        if answer.cut_after is not None or answer.stall_after is not None:
            self.close_connection = True
