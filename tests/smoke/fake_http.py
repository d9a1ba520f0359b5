"""HTTP under the fake service: a request as a value in, an answer as a value out."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

from smoke.fake_rented import Request

Answer = tuple[int, str, bytes]
"""Status, content type, body."""


def handler_of(answer_to: Callable[[Request], Answer | None]) -> type[BaseHTTPRequestHandler]:
    """A handler that asks `answer_to` about every request; None closes the connection without an answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._take()

        def do_POST(self) -> None:
            self._take()

        def do_PUT(self) -> None:
            self._take()

        def do_DELETE(self) -> None:
            self._take()

        def _take(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = answer_to(Request(self.command, self.path, headers, body, time.monotonic()))
            if answer is None:
                self.close_connection = True
                return
            status, kind, content = answer
            with suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on standard error."""

    return Handler
