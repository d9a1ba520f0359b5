"""A TCP proxy that holds every byte back for a fixed time, each way, and leaves the throughput alone.

    python bench/delay_proxy.py --one-way-ms 25 --to HOST:PORT [--to HOST:PORT ...] [--listen 127.0.0.1]

Prints one line a target, `HOST:PORT HOST:PORT`: where it listens and where that leads. Ends with its standard input.
Give the ranks of a ring these addresses to dial, and every hop passes through, the control star included; connecting
itself is not held back. It delays what TCP has already carried, so it knows nothing of loss or of windows: what it
shows is a long line of any width. A direction has two threads: one reads and stamps, the other sleeps until a chunk is
due and writes it.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

from ropeway.transport import tcp

CHUNK_BYTES = 1 << 18
MOST_HELD_BYTES = 256 << 20
"""What a direction holds at most; more than any ring has in flight."""


class Delay:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, one_way_s: float) -> None:
        self._source, self._sink = source, sink
        self._one_way_s = one_way_s
        self._held: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        self._room = threading.Semaphore(MOST_HELD_BYTES // CHUNK_BYTES)

    def start(self) -> None:
        """Begin to carry."""
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        data = b"."
        while data:
            self._room.acquire()
            try:
                data = self._source.recv(CHUNK_BYTES)
            except OSError:
                data = b""
            self._held.put((time.perf_counter() + self._one_way_s, data))

    def _write(self) -> None:
        while True:
            due, data = self._held.get()
            if (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            self._room.release()
            try:
                if not data:
                    self._sink.shutdown(socket.SHUT_WR)
                    return
                self._sink.sendall(data)
            except OSError:
                # The other end has gone: let this one know, as the line would.
                with contextlib.suppress(OSError):
                    self._source.shutdown(socket.SHUT_RD)
                return


class DelayProxy:
    """Listens for one target; connections go on until an end closes."""

    def __init__(self, target: str, one_way_s: float, host: str = "127.0.0.1") -> None:
        self._target = target
        self._one_way_s = one_way_s
        self._listener = tcp.listen(f"{host}:0")
        self.address = tcp.listening_address(self._listener)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        try:
            tcp.tune(near)
            far = tcp.connect(self._target, 5.0)
        except OSError:
            near.close()
            return
        Delay(near, far, self._one_way_s).start()
        Delay(far, near, self._one_way_s).start()


@contextlib.contextmanager
def delayed(targets: Sequence[str], one_way_s: float) -> Iterator[tuple[str, ...]]:
    """Addresses that lead to `targets`, delayed by a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--one-way-ms", str(one_way_s * 1e3)]
    for target in targets:
        command += ["--to", target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().split() for _ in targets]
            yield tuple(line[0] for line in lines)
        finally:
            process.kill()


def main() -> None:
    """Listen, say where, and carry until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one-way-ms", type=float, required=True)
    parser.add_argument("--to", action="append", required=True, metavar="HOST:PORT")
    parser.add_argument("--listen", default="127.0.0.1", metavar="HOST")
    args = parser.parse_args()
    for target in args.to:
        proxy = DelayProxy(target, args.one_way_ms / 1e3, args.listen)
        print(proxy.address, target, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
