"""What a second core is worth on this machine: the same forward while the other core rests, and while it computes too.

    python bench/two_cores.py [--model demo] [--streams 16] [--part 256] [--blocks 8] [--json]

Two cores that share memory, caches or (virtual ones) a real core are worth less than two: then no split over them comes
to twice one core, however well its stages overlap. The whole model here and in a second process, a core and a thread
each; the second process computes or waits, in turn. "Worth" is 2 times the time alone over the time beside the other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from results import Figure, Result
from ropeway.checkpoints.demo import resolve_model
from ropeway.engines.base import Span
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.placement import Options, place

DEPTH = 128
Work = Callable[[], None]


def workloads(model: str, streams: int, part: int) -> dict[str, Work]:
    """Forwards by name, each over the same positions again and again."""
    options = Options(model, 1, context=max(part, DEPTH) + 64, chunk=part, parallel=streams, threads=1)
    whole = WholeModel(place(options).whole_config())
    for slot in range(streams):
        whole.forward([Span(slot, 0, DEPTH)], [5] * DEPTH, [DEPTH - 1])

    def decode(count: int) -> None:
        whole.forward([Span(slot, DEPTH, 1) for slot in range(count)], [7] * count, range(count))
        for slot in range(count):
            whole.keep(slot, DEPTH)

    def read() -> None:
        whole.keep(0, 0)
        whole.forward([Span(0, 0, part)], [5] * part, [part - 1])
        whole.keep(0, DEPTH)

    return {
        "decode, one stream": lambda: decode(1),
        f"decode, {streams} streams": lambda: decode(streams),
        f"a part of {part} rows": read,
    }


def pin(core: int) -> None:
    """Stay on that core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})


class Neighbour:
    """A second process that computes the same on the other core when told to."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, __file__, *arguments, "--neighbour"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._hear()

    @contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """It computes that for as long as the context lasts."""
        self._say(name)
        self._hear()
        yield
        self._say("")
        self._hear()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the second process has ended")


def be_neighbour(works: dict[str, Work]) -> None:
    """Answer each line once it is heeded: a name begins its work, an empty line ends it."""
    os.set_blocking(0, False)
    current: Work | None = None
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    heard = b""
    while True:
        try:
            read = os.read(0, 4096)
            if not read:
                return
            heard += read
        except BlockingIOError:
            if current is None:
                time.sleep(0.0005)
        while b"\n" in heard:
            line, _, heard = heard.partition(b"\n")
            current = works[line.decode()] if line else None
            if current is not None:
                current()
            sys.stdout.write("done\n")
            sys.stdout.flush()
        if current is not None:
            current()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--part", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--neighbour", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    path = str(resolve_model(args.model))
    pin(1 if args.neighbour else 0)
    works = workloads(path, args.streams, args.part)
    if args.neighbour:
        be_neighbour(works)
        return
    given = ["--model", str(Path(path).resolve()), "--streams", str(args.streams), "--part", str(args.part)]
    neighbour = Neighbour(given)
    figures = []
    for name, work in works.items():
        worth = []
        for _ in range(args.blocks):
            alone = timed(work)
            with neighbour.computing(name):
                beside = timed(work)
            worth.append(2 * alone / beside)
        figures.append(Figure.of(name, "cores", worth, ideal=2.0))
    neighbour.close()
    Result("two_cores", f"{args.model}, the whole model on each core", tuple(figures)).tell(args)


def timed(work: Work, least_s: float = 0.3) -> float:
    """Seconds of one forward, over as many as fill `least_s`."""
    work()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < least_s:
        work()
        count += 1
    return (time.perf_counter() - started) / count


if __name__ == "__main__":
    main()
