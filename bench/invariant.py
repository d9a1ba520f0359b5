"""What --invariant costs, shape by shape: one engine with it and one without, measured in turn.

    python bench/invariant.py [MODEL ...] [--dtype bf16] [--rounds 5] [--json]

Times without it and with it, in ms, and the second over the first, pair by pair; a pair in which other processes had
the machine is thrown away. One thread. Of a tiny model (tests/engines/torch/tiny_models.py) what is measured is calls
and not arithmetic: the most that this mode can cost.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

from harness import Pairs, window
from results import Figure, Result
from ropeway.engines.base import EngineConfig, Span
from ropeway.engines.torch.engine import TorchEngine
from ropeway.engines.whole import EngineWhole
from ropeway.launch.placement import Options, place

DEPTH, STEPS, STREAMS, BLOCK = 256, 8, 8, 4


class Engine:
    """A whole model with all of its streams at DEPTH."""

    def __init__(self, config: EngineConfig, *, invariant: bool) -> None:
        self.whole = EngineWhole(TorchEngine(dataclasses.replace(config, invariant=invariant, boundary=None)))
        for slot in range(STREAMS):
            self._read(slot)

    def _read(self, slot: int) -> None:
        self.whole.forward([Span(slot, 0, DEPTH)], tokens(DEPTH), [DEPTH - 1])

    def step(self, streams: int, rows: int) -> float:
        """Milliseconds of a round of `rows` rows of so many streams, which are then rolled back."""
        taken = 0.0
        for _ in range(STEPS):
            spans = [Span(slot, DEPTH, rows) for slot in range(streams)]
            started = time.perf_counter()
            self.whole.forward(spans, tokens(rows) * streams, range(rows * streams))
            taken += time.perf_counter() - started
            for slot in range(streams):
                self.whole.keep(slot, DEPTH)
        return 1e3 * taken / STEPS

    def prompt(self) -> float:
        """Milliseconds of a prompt of 512 tokens, in one part."""
        self.whole.release(0)
        started = time.perf_counter()
        self.whole.forward([Span(0, 0, 512)], tokens(512), [511])
        taken = time.perf_counter() - started
        self.whole.release(0)
        self._read(0)
        return 1e3 * taken


SHAPES: dict[str, Callable[[Engine], float]] = {
    "a token of one stream": lambda engine: engine.step(1, 1),
    f"a token of each of {STREAMS} streams": lambda engine: engine.step(STREAMS, 1),
    f"{BLOCK} rows of one stream (drafts)": lambda engine: engine.step(1, BLOCK),
    "a prompt of 512": lambda engine: engine.prompt(),
}


def tokens(count: int) -> list[int]:
    """Ids that every vocabulary has."""
    return [5 + 7 * at % 300 for at in range(count)]


def measure(model: str, dtype: str, rounds: int) -> tuple[list[Figure], int]:
    """Figures of one model, and how many pairs were thrown away."""
    options = Options(model, 1, threads=1, context=1024, parallel=STREAMS, chunk=512, dtype=dtype, device="cpu",
                      engines=("torch",))  # fmt: skip
    config = place(options).whole_config()
    plain, invariant = Engine(config, invariant=False), Engine(config, invariant=True)
    figures, thrown = [], 0
    for name, run in SHAPES.items():
        pairs = Pairs()
        for _ in range(rounds + 1):  # the first is not counted
            with window([os.getpid()]) as seen:
                first, second = run(plain), run(invariant)
            pairs.add(second, first, seen)
        figures.append(Figure.of(f"{Path(model).stem}, {name}: without", "ms", pairs.b[1:], more=False))
        figures.append(Figure.of(f"{Path(model).stem}, {name}: with it", "ms", pairs.a[1:], more=False))
        figures.append(Figure.of(f"{Path(model).stem}, {name}: ratio", "", pairs.ratios[1:], more=False))
        thrown += pairs.thrown
    return figures, thrown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["demo"])
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {0})
    found = [measure(model, args.dtype, args.rounds) for model in args.models]
    figures = tuple(figure for some, _ in found for figure in some)
    notes = (f"pairs thrown away because others were busy: {sum(thrown for _, thrown in found)}",)
    names = ", ".join(Path(model).stem for model in args.models)
    Result("invariant", f"{names}, {args.dtype}, one thread, at {DEPTH} positions", figures, notes).tell(args)


if __name__ == "__main__":
    main()
