"""vast.ai over its REST API: search, create, status, logs, destroy, list a run.

Each call is one request (logs are two or more), paced and with a time limit; who calls decides what is asked again. The
key is in one header of requests to the service's own host, and in nothing else.
"""

from __future__ import annotations

import ipaddress
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from ropeway.launch.provider import (
    LOG_LINES,
    Denied,
    Instance,
    NotDone,
    Offer,
    Order,
    ProviderError,
    Refused,
    Unclear,
    Wanted,
    is_of_run,
)
from ropeway.launch.vastai_shapes import (
    create_body,
    read_created,
    read_instance,
    read_instances,
    read_offers,
    search_body,
)

SERVER: Final = "https://console.vast.ai"
API: Final = "/api/v0"
TIMEOUT_S: Final = 30.0
GAP_S: Final = 0.15
CREATE_GAP_S: Final = 0.6
"""Between two creates: bursts are answered with 429."""
LOG_TRIES: Final = 10
LOG_POLL_S: Final = 0.7
LOG_BYTES: Final = 64 << 10
REPLY_BYTES: Final = 16 << 20
_SAID: Final = 300
"""Characters of what the service says that are passed on."""

T = TypeVar("T")


class VastAi:
    """The service at `server`, for the account of `key`. Raises ValueError where the key would cross a net in clear.

    `sleep` waits between requests. Safe for several threads.
    """

    name = "vastai"

    def __init__(
        self,
        key: str,
        server: str = SERVER,
        *,
        timeout_s: float = TIMEOUT_S,
        gap_s: float = GAP_S,
        create_gap_s: float = CREATE_GAP_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server = server.rstrip("/")
        check_server(self.server)
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("api-key: it is empty or has characters that no key has")
        self._key = key
        self._timeout_s = timeout_s
        self._gap_s = gap_s
        self._create_gap_s = create_gap_s
        self._sleep = sleep
        self._pace = threading.Lock()
        self._next_at = 0.0
        limits = httpx.Timeout(timeout_s, connect=min(10.0, timeout_s))
        # A proxy of the environment gets the key only inside TLS; plain HTTP stays on this machine.
        tls = self.server.startswith("https:")
        self._client = httpx.Client(timeout=limits, follow_redirects=False, trust_env=tls)

    def search(self, wanted: Wanted) -> tuple[Offer, ...]:
        """As `Provider`."""
        what = "the search"
        value = self._ask("POST", "/bundles/", search_body(wanted), what)
        return self._read(what, value, lambda reply: read_offers(reply, wanted))

    def create(self, offer: Offer, order: Order) -> int:
        """As `Provider`."""
        what = f"renting offer {offer.id}"
        value = self._ask("PUT", f"/asks/{offer.id}/", create_body(order), what, self._create_gap_s)
        created = self._read(what, value, read_created)
        if created is None:
            raise Refused(f"{what}: {self._told(value or {})}")
        return created

    def status(self, instance: int) -> Instance | None:
        """As `Provider`."""
        what = f"the status of instance {instance}"
        value = self._ask("GET", f"/instances/{instance}/?owner=me", None, what)
        return None if value is None else self._read(what, value, read_instance)

    def list_run(self, label: str) -> tuple[Instance, ...]:
        """As `Provider`."""
        what = "the list of instances"
        found = self._read(what, self._ask("GET", "/instances/?owner=me", None, what), read_instances)
        return tuple(instance for instance in found if is_of_run(instance.label, label))

    def destroy(self, instance: int) -> None:
        """As `Provider`. A 404 means that there is none."""
        what = f"destroying instance {instance}"
        value = self._ask("DELETE", f"/instances/{instance}/", {}, what)
        if value is not None and value.get("success") is not True:
            raise Unclear(f"{what}: {self._told(value)}")

    def logs(self, instance: int) -> str:
        """As `Provider`. The service puts them somewhere else, where the key must not go."""
        what = f"the log of instance {instance}"
        value = self._ask("PUT", f"/instances/request_logs/{instance}/", {"tail": str(LOG_LINES)}, what)
        url = None if value is None else value.get("result_url")
        if not isinstance(url, str):
            raise Refused(f"{what}: {self._told(value or {})}")
        try:
            check_server(url)
        except ValueError as error:
            raise Refused(f"{what}: {error}") from None
        for _ in range(LOG_TRIES):
            try:
                status, content = self._fetch("GET", url, {}, None, LOG_BYTES, cut=True)
            except httpx.HTTPError as error:
                raise Unclear(f"{what}: {type(error).__name__}") from None
            if status == 200:
                return self.clean(content.decode(errors="replace"))
            self._sleep(LOG_POLL_S)
        raise Unclear(f"{what}: it has not come within {LOG_TRIES} tries")

    def destroy_command(self, instance: object) -> str:
        """As `Provider`; the key stays a variable."""
        url = f"{self.server}{API}/instances/{instance}/"
        return f'curl -X DELETE -H "Authorization: Bearer $VAST_API_KEY" {url}'

    def close(self) -> None:
        """Let connections go."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clean(self, text: str) -> str:
        """What the service said, fit to be shown: no control characters, no key."""
        return "".join(c if c.isprintable() or c == "\n" else " " for c in text.replace(self._key, "***")).strip()

    def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None, what: str, gap_s: float | None = None
    ) -> dict[str, Any] | None:
        """One request and its JSON reply; None for 404 where one instance was asked for."""
        self._wait_turn(self._gap_s if gap_s is None else gap_s)
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        try:
            status, content = self._fetch(method, f"{self.server}{API}{path}", headers, body, REPLY_BYTES)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotDone(f"{what}: {self.server} cannot be reached ({type(error).__name__})") from None
        except httpx.TimeoutException:
            raise Unclear(f"{what}: no answer within {self._timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise Unclear(f"{what}: the connection failed ({type(error).__name__})") from None
        text = content.decode(errors="replace")
        if status == 404 and path.startswith("/instances/") and method in ("GET", "DELETE"):
            return None
        if status != 200:
            raise self._error(what, status, text)
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Unclear(f"{what}: the answer is not a JSON object: {self.clean(text)[:_SAID]}")
        return value

    def _fetch(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Mapping[str, object] | None,
        most: int,
        *,
        cut: bool = False,
    ) -> tuple[int, bytes]:
        """Status and at most `most` bytes of a reply; a longer one is an error, or `cut` at its beginning.

        Raises httpx.HTTPError. The time limit of a request holds for the whole of it, however slowly it drips.
        """
        until = time.monotonic() + self._timeout_s
        content = bytearray()
        with self._client.stream(method, url, headers=dict(headers), json=body) as reply:
            for piece in reply.iter_bytes():
                content += piece
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("the reply takes too long")
                if len(content) > most:
                    if not cut:
                        raise httpx.DecodingError(f"a reply of more than {most} bytes")
                    del content[:-most]
        return reply.status_code, bytes(content)

    def _error(self, what: str, status: int, text: str) -> ProviderError:
        said = self.clean(self._said_in(text))[:_SAID] or "no reason given"
        if status == 429:
            return NotDone(f"{what}: too many requests (429): {said}")
        if status in (401, 403):
            return Denied(f"{what}: the key is not accepted ({status}): {said}")
        if 400 <= status < 500:
            return Refused(f"{what}: refused ({status}): {said}")
        return Unclear(f"{what}: status {status}: {said}")

    @staticmethod
    def _said_in(text: str) -> str:
        """The words of an error's body: 429 comes as plain text, others as JSON."""
        try:
            value = json.loads(text)
        except ValueError:
            return text
        return (_words(value) if isinstance(value, dict) else "") or text

    def _told(self, value: Mapping[str, Any]) -> str:
        return self.clean(_words(value))[:_SAID] or "it gave no reason"

    def _read(self, what: str, value: dict[str, Any] | None, read: Callable[[Mapping[str, Any]], T]) -> T:
        if value is None:
            raise Unclear(f"{what}: there is no such thing")
        try:
            return read(value)
        except ValueError as error:
            raise Unclear(f"{what}: the answer has {error}") from None

    def _wait_turn(self, gap_s: float) -> None:
        with self._pace:
            now = time.monotonic()
            turn = max(now, self._next_at)
            self._next_at = turn + gap_s
        if turn > now:
            self._sleep(turn - now)


def _words(value: Mapping[str, Any]) -> str:
    return " ".join(text for name in ("error", "msg") if isinstance(text := value.get(name), str))


def check_server(url: str) -> None:
    """Refuse, with ValueError, a URL that is neither HTTPS nor plain HTTP to this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.username or parts.password:
        raise ValueError("server-url: it must not hold a user name or a password")
    if parts.scheme == "https" and host:
        return
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if parts.scheme != "http" or not here:
        raise ValueError(f"server-url: {url!r} is neither https:// nor http:// to this machine")
