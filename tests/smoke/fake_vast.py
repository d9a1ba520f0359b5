"""vast.ai on loopback: its calls, its shapes and its moods. What is rented are real processes that run `pp-gpu-node`.

It holds itself to what the vendor's pages say (see vastai_shapes.py): a create is not idempotent, 429 is plain text and
comes of creates in a burst, an instance is null, then `loading`, then `running`, and `exited` once its process ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from smoke.fake_http import Answer, handler_of
from smoke.fake_rented import BURST_S, KEY, LIMIT_S, Moods, Rented, Request, offer

PAGE = b"<!DOCTYPE html><html><body>Down for maintenance</body></html>"
Gate = Callable[[Request], None]
T = TypeVar("T")


class FakeVast:
    """The service and everything that is rented from it; `rented` is what still costs money."""

    def __init__(self, offers: int = 4) -> None:
        self.offers = [offer(number) for number in range(offers)]
        self.moods = Moods()
        self.requests: list[Request] = []
        self.ever: list[Rented] = []
        self.gates: dict[str, Gate] = {}
        """Called inside a request of a kind, before it is answered."""
        self.burst_s = BURST_S
        self._alive: dict[int, Rented] = {}
        self._lock = threading.RLock()
        self._next = 7000
        self._last_create = 0.0
        self._directory = tempfile.TemporaryDirectory()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self.answer))
        self._server.daemon_threads = True
        self._closing = threading.Event()
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def rented(self) -> list[int]:
        """Ids of what is rented now."""
        with self._lock:
            return sorted(self._alive)

    def of_stage(self, stage: int) -> Rented:
        """The instance of a stage, waited for."""
        return self.until(lambda: next((r for r in self.ever if r.stage == stage), None))

    def until(self, found: Callable[[], T | None], limit_s: float = LIMIT_S) -> T:
        """Wait until `found` gives something, which is given back."""
        give_up = time.monotonic() + limit_s
        while not (value := found()):
            assert time.monotonic() < give_up, f"not within {limit_s:g} s"
            time.sleep(0.02)
        return value

    def asked(self, kind: str) -> list[Request]:
        """The requests of a kind so far."""
        return [request for request in self.requests if request.kind == kind]

    def close(self) -> None:
        """End everything."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for rented in self.ever:
                self._end(rented)
        self._directory.cleanup()

    # What a request comes to: status, content type, body; None to close the connection without an answer.

    def answer(self, request: Request) -> Answer | None:
        with self._lock:
            self.requests.append(request)
        gate = self.gates.get(request.kind)
        if gate is not None:
            gate(request)
        if request.kind == "fetch":
            return self._fetch(request)
        rented_by = self._who(request)
        if rented_by is None:
            return _json(401, {"success": False, "error": "auth_error", "msg": "Invalid user key"})
        if rented_by != "owner" and request.kind not in ("destroy", "stop"):
            return _json(403, {"success": False, "error": "forbidden", "msg": "not with an instance's key"})
        body = json.loads(request.body) if request.body else {}
        match request.kind:
            case "search":
                return self._search(body)
            case "create":
                return self._create(int(request.path.strip("/").split("/")[-1]), body)
            case "list":
                if odd := _odd(_next(self.moods.lists)):
                    return odd
                return _json(200, {"instances": [self._shape(rented) for rented in list(self._alive.values())]})
            case "status":
                return self._status(_id(request))
            case "logs":
                return _json(200, {"success": True, "result_url": f"{self.url}/result/{_id(request)}.txt"})
            case "destroy":
                return self._destroy(_id(request), rented_by)
            case "stop":
                return self._stop(_id(request), rented_by)
        raise AssertionError(request)

    def _who(self, request: Request) -> str | None:
        """owner, or the id of the instance whose own key this is."""
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key == KEY:
            return "owner"
        return next((str(r.id) for r in self.ever if r.key and r.key == key), None)

    def _search(self, body: dict[str, Any]) -> Answer:
        assert body["rentable"] == {"eq": True}
        assert body["rented"] == {"eq": False}
        assert body["order"] == [["dph_total", "asc"]]
        if odd := _odd(_next(self.moods.searches)):
            return odd
        found = [o for o in self.offers if all(_fits(o, name, rule) for name, rule in body.items())]
        return _json(200, {"offers": sorted(found, key=lambda o: float(o["dph_total"]))[: body["limit"]]})

    def _create(self, ask: int, body: dict[str, Any]) -> Answer | None:
        with self._lock:
            now = time.monotonic()
            burst, self._last_create = now - self._last_create < self.burst_s, now
        mood = _next(self.moods.creates)
        if burst or mood == "busy":
            return _busy()
        if mood == "denied":
            return _json(403, {"success": False, "error": "insufficient_credit", "msg": "no credit on the account"})
        if mood == "refused":
            return _json(400, {"success": False, "error": "invalid_args", "msg": "the image is not a name"})
        if mood == "swallowed":
            self._hang()
            return None
        chosen = next((o for o in self.offers if o["id"] == ask), None)
        if mood == "gone" or chosen is None:
            self.offers = [o for o in self.offers if o["id"] != ask]
            return _json(200, {"success": False, "error": "no_such_ask", "msg": f"no_such_ask {ask}"})
        self.offers = [o for o in self.offers if o["id"] != ask]
        rented = self._rent(chosen, body)
        if mood == "lost":
            self._hang()
            return None
        if mood == "broken":
            return 504, "text/html", b"<html>504 Gateway Time-out</html>"
        if mood == "page":
            return 200, "text/html", PAGE
        return _json(200, {"success": True, "new_contract": rented.id})

    def _rent(self, chosen: dict[str, Any], body: dict[str, Any]) -> Rented:
        with self._lock:
            self._next += 1
            stage = int(body["env"]["STAGE"])
            how = self.moods.instances.get(stage, "run")
            key = f"instance-key-{self._next}" if self.moods.container_key else ""
            rented = Rented(self._next, chosen, body, how, key, Path(self._directory.name, f"{self._next}.log"))
            self.ever.append(rented)
            self._alive[rented.id] = rented
        if how == "run":
            self._start(rented)
        return rented

    def _start(self, rented: Rented) -> None:
        """As `docker run` would: the image's environment, the order's, and what the service adds."""
        names = ("PATH", "HOME", "PYTHONPATH", "ROPEWAY_CACHE", "LANG", "TMPDIR", "VIRTUAL_ENV")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment |= rented.body["env"] | {"CONTAINER_ID": str(rented.id), "CONTAINER_API_KEY": rented.key}
        environment |= self.moods.environment
        with rented.log.open("wb") as log:
            rented.process = subprocess.Popen(
                self.moods.commands.get(rented.stage, self.moods.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def _status(self, number: int) -> Answer:
        if odd := _odd(_next(self.moods.statuses)):
            return odd
        rented = self._alive.get(number)
        if rented is not None and rented.how == "vanish" and rented.looks >= 2:
            self._end(rented)
            rented = None
        if rented is None:
            return _json(404, {"success": False, "error": "no_such_instance", "msg": f"Instance {number} not found"})
        return _json(200, {"instances": self._shape(rented)})

    def _shape(self, rented: Rented) -> dict[str, Any]:
        status, message = rented.status()
        return {
            "id": rented.id,
            "machine_id": rented.offer["machine_id"],
            "actual_status": status,
            "intended_status": "stopped" if rented.stopped else "running",
            "cur_state": "running",
            "status_msg": message,
            "label": rented.body["label"],
            "image_uuid": rented.body["image"],
            "public_ipaddr": "127.0.0.1",
            "ssh_host": "ssh4.vast.ai",
            "ssh_port": 30000 + rented.id,
            "ports": {},
            "dph_total": rented.offer["dph_total"] * self.moods.dearer,
        }

    def _fetch(self, request: Request) -> Answer:
        number = int(request.path.rpartition("/")[2].partition(".")[0])
        first = len([r for r in self.asked("fetch") if r.path == request.path]) == 1
        rented = next((r for r in self.ever if r.id == number), None)
        if first or rented is None:
            return 404, "application/xml", b"<Error><Code>NoSuchKey</Code></Error>"
        return 200, "text/plain", rented.said().encode()

    def _destroy(self, number: int, who: str) -> Answer:
        if who not in ("owner", str(number)):
            return _json(403, {"success": False, "error": "forbidden", "msg": "not your instance"})
        mood = _next(self.moods.destroys if who == "owner" else self.moods.self_destroys)
        if odd := _odd(mood):
            return odd
        rented = self._alive.get(number)
        if rented is None:
            return _json(404, {"success": False, "error": "no_such_instance", "msg": f"Instance {number} not found"})
        if mood != "stuck":
            self._end(rented)
        return _json(200, {"success": True})

    def _stop(self, number: int, who: str) -> Answer:
        rented = self._alive.get(number)
        if rented is None or who not in ("owner", str(number)):
            return _json(403, {"success": False, "error": "forbidden", "msg": "not your instance"})
        rented.stopped = True
        rented.kill()
        return _json(200, {"success": True})

    def _end(self, rented: Rented) -> None:
        with self._lock:
            self._alive.pop(rented.id, None)
        rented.kill()
        if rented.process is not None:
            rented.process.wait()

    def _hang(self) -> None:
        """Let the client run into its time limit."""
        self._closing.wait(LIMIT_S)


@contextmanager
def fake_vast(offers: int = 4) -> Iterator[FakeVast]:
    """A service for as long as the context lasts."""
    fake = FakeVast(offers)
    try:
        yield fake
    finally:
        fake.close()


def _fits(entry: dict[str, Any], name: str, rule: Any) -> bool:
    if not isinstance(rule, dict) or name not in entry:
        return True
    value = entry[name]
    return all(value == want if how == "eq" else value >= want for how, want in rule.items())


def _next(moods: deque[str]) -> str:
    if not moods:
        return "ok"
    return moods.popleft() if len(moods) > 1 else moods[0]


def _odd(mood: str) -> Answer | None:
    """An answer to anything that does nothing."""
    return {
        "busy": _busy(),
        "broken": (502, "text/html", b"<html><body>Bad Gateway</body></html>"),
        "page": (200, "text/html", PAGE),
        "false": _json(200, {"success": False, "error": "internal", "msg": "try again"}),
        "missing": (404, "text/html", b"<html>404 Not Found</html>"),
    }.get(mood)


def _id(request: Request) -> int:
    return int(request.path.partition("?")[0].strip("/").split("/")[-1])


def _json(status: int, value: dict[str, Any]) -> Answer:
    return status, "application/json", json.dumps(value).encode()


def _busy() -> Answer:
    return 429, "text/plain", b"API requests too frequent endpoint threshold=0.5"
