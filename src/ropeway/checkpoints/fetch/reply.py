"""One answer of a web server: its body into a lent buffer, and what its status means for a fetch."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from email.message import Message
from http.client import HTTPException, HTTPResponse

from ropeway.checkpoints.fetch.source import Missing, SourceError
from ropeway.checkpoints.fetch.spec import public_url

SLOW_WINDOW_S = 60.0
SLOW_BYTES = 64 << 10
"""A body that brings less in a window is given up: a server that drips bytes must not hold a fetch for ever."""
LONGEST_RETRY_AFTER_S = 120.0
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class Reply:
    """One answer whose body has not been read. `first` are the headers of the first answer, before any redirect."""

    def __init__(self, url: str, body: HTTPResponse, clock: Callable[[], float]) -> None:
        self.url = url
        self.status = body.status
        self.headers: Message = body.headers
        self.first: Message = body.headers
        self._body = body
        self._left = None if body.chunked else body.length
        self._clock = clock
        self._window = (clock(), 0)
        if self.spent:
            body.close()

    @property
    def spent(self) -> bool:
        """The body has been read to its end, so that its connection is free for the next request."""
        return self._left == 0

    @property
    def label(self) -> str:
        """Where it came from, to be shown."""
        return public_url(self.url)

    def read_into(self, view: memoryview) -> int:
        """The next bytes of the body, as they come; 0 at its end, also where it ends early. Raises SourceError."""
        if self._left == 0:
            return 0
        if self._body.isclosed():  # by a later request to the same site
            raise SourceError(f"{self.label}: the connection was given up")
        try:
            if self._left is None:
                count = self._body.readinto(view)
            else:  # HTTPResponse's own methods wait until the view is full, or do not count what they give
                count = self._body.fp.readinto1(view[: self._left])
                self._left -= count
                if not self._left:
                    self._body.close()
        except (OSError, HTTPException) as error:
            raise SourceError(f"{self.label}: the connection was lost: {why(error)}") from None
        self._watch(count)
        return count

    def text(self, limit: int, what: str) -> bytes:
        """The whole body, of at most `limit` bytes. Raises SourceError."""
        declared = self.length
        if declared is not None and declared > limit:
            raise SourceError(f"{self.label}: {what} has {declared} bytes, the limit is {limit}", lasting=True)
        found, buffer = bytearray(), memoryview(bytearray(64 << 10))
        while count := self.read_into(buffer):
            found += buffer[:count]
            if len(found) > limit:
                raise SourceError(f"{self.label}: {what} has more than {limit} bytes", lasting=True)
        if declared is not None and len(found) != declared:
            raise SourceError(f"{self.label}: the connection was cut after {len(found)} of {declared} bytes")
        return bytes(found)

    @property
    def length(self) -> int | None:
        """Content-Length, where it is given and sane."""
        return whole_number(self.headers.get("Content-Length"))

    def close(self) -> None:
        """Give the body up."""
        self._body.close()

    def _watch(self, count: int) -> None:
        began, taken = self._window
        now = self._clock()
        if now - began >= SLOW_WINDOW_S:
            if taken + count < SLOW_BYTES and count:
                raise SourceError(f"{self.label}: only {taken + count} bytes came in {SLOW_WINDOW_S:.0f} s")
            self._window = (now, 0)
        else:
            self._window = (began, taken + count)


def whole_number(text: str | None) -> int | None:
    """A header's decimal number; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None


def judge_status(reply: Reply, *, secret_sent: bool) -> None:
    """Let 200, 206 and 416 pass. Raises SourceError, Missing among them, for what else a server may say."""
    status = reply.status
    if status in (200, 206, 416):
        encoding = reply.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise SourceError(f"{reply.label}: the server insists on the encoding {encoding[:40]!r}", lasting=True)
        return
    what = f"{reply.label}: {status} {http.client.responses.get(status, '')}".rstrip()
    asked = whole_number(reply.headers.get("Retry-After"))
    reply.close()
    if status in (404, 410):
        raise Missing(what)
    if status in (401, 403):
        hint = "the token does not open it" if secret_sent else "it may need a token (HF_TOKEN) or an agreed licence"
        raise SourceError(f"{what}: {hint}", lasting=True)
    if status in _TRY_AGAIN:
        raise SourceError(what, retry_after_s=min(asked or 0, LONGEST_RETRY_AFTER_S))
    raise SourceError(what, lasting=True)


def why(error: Exception) -> str:
    """What went wrong with a connection, in words."""
    if isinstance(error, TimeoutError):
        return "nothing came in time"
    text = error.strerror if isinstance(error, OSError) else None
    return text or f"{type(error).__name__} {error}".strip()
