"""GET over HTTP/1.1 with the standard library: redirects followed by rules of our own, connections kept, bodies read
into a lent buffer.

Not urllib's opener, which carries Authorization along to another host; not httpx, which would be a dependency of the
core for what is one method here. A secret goes to its own origin only, never over plain HTTP beyond this machine.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from ropeway.checkpoints.fetch.source import Missing, SourceError
from ropeway.checkpoints.fetch.spec import public_url

MAX_REDIRECTS = 8
TIMEOUT_S = 30.0
"""Longest wait for a connection, for headers, or for the next bytes of a body."""
SLOW_WINDOW_S = 60.0
SLOW_BYTES = 64 << 10
"""A body that brings less in a window is given up: a server that drips bytes must not hold a fetch for ever."""
LONGEST_RETRY_AFTER_S = 120.0
_REDIRECTS = (301, 302, 303, 307, 308)
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Site = tuple[str, str, int]
"""Scheme, host and port."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A bearer token for one origin; its text never shows."""

    site: Site
    token: str = field(repr=False)

    def header_for(self, site: Site) -> dict[str, str]:
        """The header that a request to `site` carries."""
        safe = site[0] == "https" or site[1] in _LOOPBACK
        return {"Authorization": f"Bearer {self.token}"} if site == self.site and safe else {}


def site_of(url: str) -> Site:
    """The origin of a URL. Raises SourceError for one that cannot be fetched."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise SourceError(f"{public_url(url)} is not a URL that can be fetched", lasting=True)
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)


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
            raise SourceError(f"{self.label}: the connection was lost: {_why(error)}") from None
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


class Web:
    """Connections to web servers, one a site, for one thread."""

    def __init__(
        self,
        secret: Secret | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secret = secret
        self._timeout_s = timeout_s
        self._clock = clock
        self._open: dict[Site, HTTPConnection] = {}
        self._busy: tuple[Site, Reply] | None = None
        self._tls: ssl.SSLContext | None = None

    def get(self, url: str, headers: Mapping[str, str] = {}) -> Reply:
        """The answer to GET, redirects followed, of status 200, 206 or 416. Raises SourceError for any other."""
        first: Message | None = None
        site = site_of(url)
        for _ in range(MAX_REDIRECTS + 1):
            reply = self._ask(site, url, headers)
            reply.first = first = first or reply.headers
            if reply.status not in _REDIRECTS:
                _judge_status(reply, bool(self._secret and self._secret.header_for(site)))
                return reply
            here, target = url, reply.headers.get("Location", "")
            reply.close()
            url = urljoin(here, quote(target, safe="%/:=&?~#+!$,;'@()*[]"))
            old, site = site, site_of(url)
            if not target:
                raise SourceError(f"{public_url(here)}: a redirect to nowhere", lasting=True)
            if old[0] == "https" and site[0] != "https":
                raise SourceError(f"{public_url(here)}: a redirect from https to {public_url(url)}", lasting=True)
        raise SourceError(f"{public_url(url)}: more than {MAX_REDIRECTS} redirects", lasting=True)

    def close(self) -> None:
        """Close every connection."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        self._busy = None

    def _ask(self, site: Site, url: str, headers: Mapping[str, str]) -> Reply:
        self._settle()
        used = site in self._open
        try:
            return self._ask_once(site, url, headers)
        except (OSError, HTTPException) as error:
            self._drop(site)
            if not used or isinstance(error, TimeoutError):
                raise _unreachable(url, error) from None
        try:  # a kept connection that the server closed meanwhile
            return self._ask_once(site, url, headers)
        except (OSError, HTTPException) as error:
            self._drop(site)
            raise _unreachable(url, error) from None

    def _ask_once(self, site: Site, url: str, headers: Mapping[str, str]) -> Reply:
        connection = self._open.get(site)
        if connection is None:
            connection = self._open[site] = self._connect(site)
        sent = {"Accept-Encoding": "identity", "User-Agent": "ropeway", **headers}
        if self._secret is not None:
            sent |= self._secret.header_for(site)
        connection.request("GET", _target(site, url), headers=sent)
        reply = Reply(url, connection.getresponse(), self._clock)
        self._busy = (site, reply)
        return reply

    def _settle(self) -> None:
        """Before the next request: a connection whose last body was not read to its end is of no more use."""
        if self._busy is not None and not self._busy[1].spent:
            self._drop(self._busy[0])
        self._busy = None

    def _drop(self, site: Site) -> None:
        if connection := self._open.pop(site, None):
            connection.close()

    def _connect(self, site: Site) -> HTTPConnection:
        scheme, host, port = site
        proxy = _proxy_for(site)
        at = (host, port) if proxy is None else proxy
        if scheme == "http":
            return HTTPConnection(*at, timeout=self._timeout_s)
        self._tls = self._tls or ssl.create_default_context()
        connection = HTTPSConnection(*at, timeout=self._timeout_s, context=self._tls)
        if proxy is not None:
            connection.set_tunnel(host, port)
        return connection


def whole_number(text: str | None) -> int | None:
    """A header's decimal number; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None


def _judge_status(reply: Reply, secret_sent: bool) -> None:
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


def _target(site: Site, url: str) -> str:
    parts = urlsplit(url)
    path = quote(parts.path or "/", safe="%/:=&~+!$,;'@()*")
    target = path + (f"?{parts.query}" if parts.query else "")
    if site[0] == "http" and _proxy_for(site) is not None:
        return f"http://{parts.netloc.rpartition('@')[2]}{target}"
    return target


def _proxy_for(site: Site) -> tuple[str, int] | None:
    """The proxy that the environment names for a site."""
    proxy = getproxies().get(site[0])
    if not proxy or site[1] in _LOOPBACK or proxy_bypass(site[1]):
        return None
    parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    return (parts.hostname, parts.port or 80) if parts.hostname else None


def _unreachable(url: str, error: Exception) -> SourceError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return SourceError(f"{public_url(url)}: {error.verify_message}", lasting=True)
    if isinstance(error, http.client.InvalidURL):
        return SourceError(f"{public_url(url)} is not a URL that can be fetched", lasting=True)
    return SourceError(f"{public_url(url)}: no answer: {_why(error)}")


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "nothing came in time"
    text = error.strerror if isinstance(error, OSError) else None
    return text or f"{type(error).__name__} {error}".strip()
