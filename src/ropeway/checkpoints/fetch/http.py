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
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from ropeway.checkpoints.fetch.reply import Reply, judge_status, why
from ropeway.checkpoints.fetch.source import SourceError
from ropeway.checkpoints.fetch.spec import public_url

MAX_REDIRECTS = 8
TIMEOUT_S = 30.0
"""Longest wait for a connection, for headers, or for the next bytes of a body."""
_REDIRECTS = (301, 302, 303, 307, 308)
_QUERY = "%/:=&?~#+!$,;'@()*[]"
"""What stays as it is in a URL that is written down already."""
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
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise SourceError(f"{public_url(url)} is not a URL that can be fetched", lasting=True) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise SourceError(f"{public_url(url)} is not a URL that can be fetched", lasting=True)
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)


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

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        """The answer to GET, redirects followed, of status 200, 206 or 416. Raises SourceError for any other."""
        first: Message | None = None
        site = site_of(url)
        for _ in range(MAX_REDIRECTS + 1):
            reply = self._ask(site, url, headers or {})
            reply.first = first = first or reply.headers
            if reply.status not in _REDIRECTS:
                judge_status(reply, secret_sent=bool(self._secret and self._secret.header_for(site)))
                return reply
            here, target = url, reply.headers.get("Location", "")
            reply.close()
            if not target:
                raise SourceError(f"{public_url(here)}: a redirect to nowhere", lasting=True)
            url = _joined(here, quote(target, safe=_QUERY))
            old, site = site, site_of(url)
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
        except (OSError, HTTPException, UnicodeError) as error:
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


def _joined(here: str, target: str) -> str:
    try:
        return urljoin(here, target)
    except ValueError:
        raise SourceError(f"{public_url(here)}: a redirect to what is no URL", lasting=True) from None


def _target(site: Site, url: str) -> str:
    parts = urlsplit(url)
    path = quote(parts.path or "/", safe="%/:=&~+!$,;'@()*")
    target = path + (f"?{quote(parts.query, safe=_QUERY)}" if parts.query else "")
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
    if isinstance(error, http.client.InvalidURL | UnicodeError):
        return SourceError(f"{public_url(url)} is not a URL that can be fetched", lasting=True)
    return SourceError(f"{public_url(url)}: no answer: {why(error)}")
