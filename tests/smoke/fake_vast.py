"""vast.ai on loopback: its calls, its shapes and its moods. What is rented are real processes that run `pp-gpu-node`.

It holds itself to what the vendor's pages say (see vastai_shapes.py): a create is not idempotent, 429 is plain text and
comes of creates in a burst, an instance is null, then `loading`, then `running`, and `exited` once its process ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

KEY = "5ec2e7f00dfeed0123456789abcdef5ec2e7f00dfeed0123456789abcdef0000"
HERE = Path(__file__).parent
NODE = (sys.executable, "-m", "ropeway.cli.gpu_node")
STUB = (sys.executable, str(HERE / "stub_node.py"))
"""The same node with a rank that loads and answers without an engine."""
SLEEPER = (sys.executable, "-c", "import time; print('a container that does nothing', flush=True); time.sleep(600)")
BURST_S = 0.5
"""Creates closer together than this are too many."""
LIMIT_S = 60.0

Gate = Callable[["Request"], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, as a test sees it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def kind(self) -> str:
        """search, create, status, list, logs, destroy or fetch."""
        if self.path.startswith("/result/"):
            return "fetch"
        head = self.path.removeprefix("/api/v0/").partition("?")[0].strip("/").split("/")
        if head[0] == "bundles":
            return "search"
        if head[0] == "asks":
            return "create"
        if len(head) > 1 and head[1] == "request_logs":
            return "logs"
        if len(head) == 1:
            return "list"
        return {"DELETE": "destroy", "PUT": "stop"}.get(self.method, "status")


@dataclass(slots=True)
class Rented:
    """One instance. `how` is its fate: run, never, error, vanish."""

    id: int
    offer: dict[str, Any]
    body: dict[str, Any]
    how: str
    key: str
    log: Path
    process: subprocess.Popen[bytes] | None = None
    looks: int = 0
    stopped: bool = False

    @property
    def stage(self) -> int:
        return int(self.body["env"]["STAGE"])

    def said(self) -> str:
        """What its process has written."""
        with suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")
        return ""

    def status(self) -> tuple[str | None, str]:
        """actual_status and status_msg now; each look is one nearer to running."""
        self.looks += 1
        if self.how == "error":
            return "loading", "Error response from daemon: failed to create task: nvidia-container-cli"
        if self.stopped:
            return "stopped", "stopped by its own key"
        if self.process is not None and self.process.poll() is not None:
            return "exited", f"exited with {self.process.returncode}"
        if self.looks == 1:
            return None, ""
        if self.how == "never" or self.looks == 2:
            return "loading", "downloading image"
        return "running", "success, running"

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal everything that runs in it."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


@dataclass(slots=True)
class Moods:
    """What the service does next: one word a create or destroy, in order, then the last for ever.

    creates: ok, gone, busy (429), lost (rented, and no answer), swallowed (no answer, nothing rented), broken (500 and
    rented), refused, denied. destroys: ok, busy, broken, stuck (says yes and does nothing).
    """

    creates: deque[str] = field(default_factory=deque)
    destroys: deque[str] = field(default_factory=deque)
    self_destroys: deque[str] = field(default_factory=deque)
    searches: deque[str] = field(default_factory=deque)
    statuses: deque[str] = field(default_factory=deque)
    instances: dict[int, str] = field(default_factory=dict)
    """The fate of a stage's instance; run by default."""
    commands: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """What a stage's instance runs."""
    command: tuple[str, ...] = STUB
    environment: dict[str, str] = field(default_factory=dict)
    container_key: bool = True


class FakeVast:
    """The service and everything that is rented from it; `rented` is what still costs money."""

    def __init__(self, offers: int = 4) -> None:
        self.offers = [offer(number) for number in range(offers)]
        self.moods = Moods()
        self.requests: list[Request] = []
        self.ever: list[Rented] = []
        self.gates: dict[str, Gate] = {}
        """Called inside a request of a kind, before it is answered."""
        self._alive: dict[int, Rented] = {}
        self._lock = threading.RLock()
        self._next = 7000
        self._last_create = 0.0
        self._directory = tempfile.TemporaryDirectory()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
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

    def answer(self, request: Request) -> tuple[int, str, bytes] | None:
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

    def _search(self, body: dict[str, Any]) -> tuple[int, str, bytes]:
        assert body["rentable"] == {"eq": True}
        assert body["rented"] == {"eq": False}
        assert body["order"] == [["dph_total", "asc"]]
        match _next(self.moods.searches):
            case "busy":
                return _busy()
            case "broken":
                return 502, "text/html", b"<html><body>Bad Gateway</body></html>"
        found = [o for o in self.offers if all(_fits(o, name, rule) for name, rule in body.items())]
        return _json(200, {"offers": sorted(found, key=lambda o: float(o["dph_total"]))[: body["limit"]]})

    def _create(self, ask: int, body: dict[str, Any]) -> tuple[int, str, bytes] | None:
        with self._lock:
            now = time.monotonic()
            burst, self._last_create = now - self._last_create < BURST_S, now
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

    def _status(self, number: int) -> tuple[int, str, bytes]:
        if _next(self.moods.statuses) == "busy":
            return _busy()
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
            "dph_total": rented.offer["dph_total"],
        }

    def _fetch(self, request: Request) -> tuple[int, str, bytes]:
        number = int(request.path.rpartition("/")[2].partition(".")[0])
        first = len([r for r in self.asked("fetch") if r.path == request.path]) == 1
        rented = next((r for r in self.ever if r.id == number), None)
        if first or rented is None:
            return 404, "application/xml", b"<Error><Code>NoSuchKey</Code></Error>"
        return 200, "text/plain", rented.said().encode()

    def _destroy(self, number: int, who: str) -> tuple[int, str, bytes]:
        if who not in ("owner", str(number)):
            return _json(403, {"success": False, "error": "forbidden", "msg": "not your instance"})
        mood = _next(self.moods.destroys if who == "owner" else self.moods.self_destroys)
        if mood == "busy":
            return _busy()
        if mood == "broken":
            return _json(500, {"success": False, "error": "internal", "msg": "try again"})
        rented = self._alive.get(number)
        if rented is None:
            return _json(404, {"success": False, "error": "no_such_instance", "msg": f"Instance {number} not found"})
        if mood != "stuck":
            self._end(rented)
        return _json(200, {"success": True})

    def _stop(self, number: int, who: str) -> tuple[int, str, bytes]:
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


def offer(number: int, **more: Any) -> dict[str, Any]:
    """One offer as the service shapes it; the cheaper the lower its number."""
    return {
        "id": 4100 + number,
        "machine_id": 90 + number,
        "gpu_name": "RTX 3060",
        "num_gpus": 1,
        "gpu_ram": 12288,
        "dph_total": round(0.05 + 0.01 * number, 4),
        "reliability2": 0.995,
        "verified": True,
        "verification": "verified",
        "rentable": True,
        "rented": False,
        "inet_down": 500.0,
        "cuda_max_good": 12.8,
        "direct_port_count": 0,
        "geolocation": "Sweden, SE",
    } | more


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


def _id(request: Request) -> int:
    return int(request.path.partition("?")[0].strip("/").split("/")[-1])


def _json(status: int, value: dict[str, Any]) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(value).encode()


def _busy() -> tuple[int, str, bytes]:
    return 429, "text/plain", b"API requests too frequent endpoint threshold=0.5"


def _handler(fake: FakeVast) -> type[BaseHTTPRequestHandler]:
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
            answer = fake.answer(Request(self.command, self.path, headers, body, time.monotonic()))
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
