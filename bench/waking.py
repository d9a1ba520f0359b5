"""What waiting costs a stage: the same forward at once, after a sleep, and after a wait that keeps the core awake.

    python bench/waking.py [--model demo] [--first 15] [--end 30] [--wait-ms 10] [--blocks 30] [--json]

A stage of a ring waits while the others compute. Where its core comes back slower than it left, each hop costs more
than the cable does; this tells how much, without a ring. One core, one thread; the three take turns.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

from results import Figure, Result
from ropeway.checkpoints.demo import resolve_model
from ropeway.engines.base import EngineConfig, Span
from ropeway.engines.llamacpp.engine import LlamaCppEngine

DEPTH = 256
STEPS = 8


def awake(seconds: float) -> None:
    """Wait without giving the core away."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def forwards(engine: LlamaCppEngine, wait: Callable[[float], None], seconds: float) -> list[float]:
    """Milliseconds of STEPS forwards of one row, each behind a wait."""
    row = memoryview(bytearray(engine.boundary.row_bytes()))
    out = memoryview(bytearray(len(row)))
    found = []
    for step in range(STEPS):
        wait(seconds)
        started = time.perf_counter()
        engine.forward([Span(0, DEPTH + step, 1)], row, out)
        found.append((time.perf_counter() - started) * 1e3)
    engine.keep(0, DEPTH)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--first", type=int, default=15)
    parser.add_argument("--end", type=int, default=30)
    parser.add_argument("--wait-ms", type=float, default=10.0)
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    path = str(resolve_model(args.model))
    engine = LlamaCppEngine(
        EngineConfig(path, args.first, args.end, embed=False, head=False, context=1024, chunk=DEPTH, threads=1)
    )
    engine.load()
    rows = memoryview(bytearray(DEPTH * engine.boundary.row_bytes()))
    engine.forward([Span(0, 0, DEPTH)], rows, memoryview(bytearray(len(rows))))
    waits: dict[str, tuple[Callable[[float], None], float]] = {
        "at once": (time.sleep, 0.0),
        "after a sleep": (time.sleep, args.wait_ms / 1e3),
        "after waiting awake": (awake, args.wait_ms / 1e3),
    }
    found: dict[str, list[float]] = {name: [] for name in waits}
    for _ in range(args.blocks):
        for name, (wait, seconds) in waits.items():
            found[name] += forwards(engine, wait, seconds)
    engine.close()
    setting = f"{args.model}, layers {args.first}..{args.end}, one row, waits of {args.wait_ms:g} ms"
    figures = tuple(Figure.of(name, "ms", values, more=False) for name, values in found.items())
    Result("waking", setting, figures).tell(args)


if __name__ == "__main__":
    main()
