"""What a rank reads of a checkpoint, from each kind of source, and how fast: the demo model cut in the middle.

Sources: a path of this machine, a web server on loopback (ranges, by sendfile), another node (the exchange over
loopback); servers are processes of their own. "wanted" are the file's header and the tensors that the rank holds, each
once; "read" is what came. Each fetch begins with an empty cache, and its writes count. Rates are medians.

    python bench/fetching.py [--repeats 3] [--cut 15] [--model PATH]
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ropeway.checkpoints.demo import DEMO, resolve_model
from ropeway.checkpoints.families import layer_count
from ropeway.checkpoints.fetch.gguf_parts import tensors_of
from ropeway.checkpoints.fetch.local import whole_file
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import Offer, local_offer, open_offer, peer_offer
from ropeway.checkpoints.fetch.peer import Shelf, serve
from ropeway.checkpoints.fetch.provide import Fetch
from ropeway.checkpoints.gguf_file import GgufFile

Opener = Callable[[], contextlib.AbstractContextManager[Offer]]


class Ranges(BaseHTTPRequestHandler):
    """One file, by ranges."""

    protocol_version = "HTTP/1.1"
    path_served: Path

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        size = self.path_served.stat().st_size
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", f"bytes=0-{size - 1}"))
        assert match is not None
        first, last = int(match[1]), min(int(match[2]), size - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.wfile.flush()
        with self.path_served.open("rb") as file, contextlib.suppress(ConnectionError):
            self.connection.sendfile(file, first, last + 1 - first)


def serve_web(path: Path) -> None:
    """Be the web server; says its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Ranges,), {"path_served": path}))
    print(server.server_port, flush=True)
    server.serve_forever()


def serve_node(path: Path) -> None:
    """Be the other node; says its port."""
    shelf = Shelf(path.parent / "no-cache")
    shelf.add(whole_file(path))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0], shelf), daemon=True).start()


@contextlib.contextmanager
def other_process(kind: str, model: Path) -> Iterator[int]:
    """A server in a process of its own; its port."""
    command = [sys.executable, __file__, "--be", kind, "--model", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def wanted_bytes(model: Path, need: Need) -> int:
    """The header, and each tensor once."""
    gguf = GgufFile.open(model)
    return gguf.header_bytes + sum(gguf.tensors[name].nbytes for name in set(tensors_of(gguf, need)))


def measure(name: str, opener: Opener, model: Path, needs: list[Need], repeats: int) -> None:
    """One line a need."""
    for need in needs:
        rates, read = [], 0
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache, opener() as offer:
                started = time.perf_counter()
                fetch = Fetch(offer, Path(cache), limit=None)
                fetch.provide(need)
                seconds = time.perf_counter() - started
                elsewhere = sum(count for label, count in fetch.taken.by_source.items() if label != "this machine")
                read = offer.network_bytes or elsewhere
                rates.append(read / seconds / 1e6)
        wanted = wanted_bytes(model, need)
        print(
            f"| {name} | {need.label} | {wanted / 1e6:.2f} | {read / 1e6:.2f} | {read / wanted:.4f} "
            f"| {statistics.median(rates):.0f} |",
            flush=True,
        )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cut", type=int, default=15)
    parser.add_argument("--model", default=DEMO)
    parser.add_argument("--be", choices=("web", "node"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = resolve_model(options.model)
    if options.be:
        {"web": serve_web, "node": serve_node}[options.be](model)
    layers = layer_count(GgufFile.open(model))
    needs = [Need(0, options.cut, embed=True, head=True), Need(options.cut, layers)]
    print("| source | rank holds | wanted, MB | read, MB | read / wanted | MB/s |\n|---|---|---|---|---|---|")
    measure("path", lambda: contextlib.closing(local_offer(model)), model, needs, options.repeats)
    with other_process("web", model) as port:
        url = f"http://127.0.0.1:{port}/{model.name}"
        measure("web server", lambda: open_offer(url), model, needs, options.repeats)
    with other_process("node", model) as port:
        keys = {model.name: whole_file(model).facts.key}
        peers = [("node", partial(socket.create_connection, ("127.0.0.1", port)))]
        measure("node", lambda: contextlib.closing(peer_offer("demo", keys, peers)), model, needs, options.repeats)


if __name__ == "__main__":
    main()
