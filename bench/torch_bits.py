"""Which changes keep a stream's bits in the torch engine: the table of docs/exactness.md, measured on checkpoints.

    python bench/torch_bits.py MODEL ... [--dtype bf16] [--invariant] [--json]

One prompt of 200 rows and 16 greedy steps, read and decoded in several ways; a mark says whether every row of logits
that chose a token is the same. Bits, not times: a busy machine changes nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ropeway.engines.base import EngineConfig, Span
from ropeway.engines.torch.engine import TorchEngine
from ropeway.engines.whole import EngineWhole
from ropeway.launch.placement import Options, place

ROWS, STEPS = 200, 16
Rows = list[bytes]


def tokens_of(seed: int, count: int, vocabulary: int) -> list[int]:
    """Random ids."""
    return [int(token) for token in np.random.default_rng(seed).integers(3, vocabulary, count)]


class Run:
    """One engine, and ways to read a prompt and to decode behind it."""

    def __init__(self, config: EngineConfig) -> None:
        engine = TorchEngine(config)
        self.whole = EngineWhole(engine)
        self.vocabulary = engine._loaded.vocabulary
        self.prompt = tokens_of(0, ROWS, self.vocabulary)
        self._reply: list[int] = []

    def read(self, parts: Sequence[int], *, beside: bool = False) -> Rows:
        """The prompt in such parts; with `beside` each together with the part of another stream."""
        at, logits = 0, b""
        for rows in parts:
            spans, tokens = [Span(0, at, rows)], self.prompt[at : at + rows]
            if beside:
                spans.append(Span(1, at, rows))
                tokens = tokens + tokens_of(at + 1, rows, self.vocabulary)
            logits = self.whole.forward(spans, tokens, [rows - 1])[0].tobytes()
            at += rows
        return [logits]

    def decode(self, first: bytes, *, others: int = 0, block: int = 1) -> Rows:
        """Greedy steps, among so many other streams (slots 2 and on), `block` rows a forward (as drafts come)."""
        found, at = [first], ROWS
        for other in range(others):
            self.whole.forward([Span(2 + other, 0, 9)], tokens_of(50 + other, 9, self.vocabulary), [8])
        known = self._reply if block > 1 else []
        while len(found) <= STEPS:
            token = int(np.frombuffer(found[-1], np.float32).argmax())
            tokens = [token, *known[len(found) : len(found) + block - 1]]
            spans = [Span(0, at, len(tokens))]
            spans += [Span(2 + other, 9 + len(found) - 1, 1) for other in range(others)]
            logits = self.whole.forward(spans, [*tokens, *[7] * others], range(len(tokens)))
            found += [row.tobytes() for row in logits]
            at += len(tokens)
        for slot in range(2 + others):
            self.whole.release(slot)
        if block == 1 and not others:
            self._reply = [int(np.frombuffer(row, np.float32).argmax()) for row in found]
        return found[: STEPS + 1]

    def plain(self) -> Rows:
        """As the scheduler does it: parts of whole multiples of 64, then the rest."""
        return self.decode(self.read((192, 8))[0])


CHANGES: dict[str, Callable[[Run], Rows]] = {
    "parts of 64": lambda run: run.decode(run.read((64, 64, 64, 8))[0]),
    "parts cut elsewhere": lambda run: run.decode(run.read((100, 92, 8))[0]),
    "one part": lambda run: run.decode(run.read((ROWS,))[0]),
    "a prompt beside": lambda run: run.decode(run.read((192, 8), beside=True)[0]),
    "3 streams decode beside": lambda run: run.decode(run.read((192, 8))[0], others=3),
    "blocks of 4 rows": lambda run: run.decode(run.read((192, 8))[0], block=4),
}


def measure(model: str, dtype: str, *, invariant: bool) -> dict[str, bool]:
    """Whether each change keeps the bits."""
    options = Options(model, 1, threads=1, context=ROWS + 64, parallel=8, chunk=512, dtype=dtype, device="cpu",
                      engines=("torch",), invariant=invariant)  # fmt: skip
    config = place(options).whole_config()
    run = Run(config)
    expected = run.plain()
    found = {"again": run.plain() == expected}
    found |= {name: change(run) == expected for name, change in CHANGES.items()}
    run.whole.close()
    other = Run(dataclasses.replace(config, threads=2))
    found["2 threads"] = other.plain() == expected
    other.whole.close()
    return found


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--invariant", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = {Path(model).stem: measure(model, args.dtype, invariant=args.invariant) for model in args.models}
    if args.json:
        print(json.dumps(found))
        return
    changes = list(next(iter(found.values())))
    print("| " + " | ".join([args.dtype, *changes]) + " |\n|" + "---|" * (1 + len(changes)))
    for name, kept in found.items():
        print("| " + " | ".join([name, *("same" if kept[change] else "other" for change in changes)]) + " |")


if __name__ == "__main__":
    main()
