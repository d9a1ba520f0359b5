"""Stages of one checkpoint and the whole, driven by hand side by side: the same batches into both, bits compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ropeway.engines.base import EngineConfig, Logits, Span
from ropeway.engines.torch.engine import TorchEngine


def config_of(
    path: Path,
    layers: int,
    *,
    parallel: int = 1,
    chunk: int = 256,
    context: int = 512,
    dtype: str = "",
    invariant: bool = False,
) -> EngineConfig:
    """A whole tiny model on one thread."""
    return EngineConfig(
        str(path), 0, layers, True, True, context=context, parallel=parallel, chunk=chunk, threads=1, dtype=dtype,
        device="cpu", invariant=invariant,
    )  # fmt: skip


class Stages:
    """A ring's (or a chain's) stages in this process."""

    def __init__(self, config: EngineConfig, cuts: tuple[int, ...], *, chain: bool = False, pack: bool = True) -> None:
        edges = (0, *cuts, config.end)
        last = len(edges) - 2
        self.chain = chain
        self.engines: list[TorchEngine] = []
        for rank in range(last + 1):
            head = rank == (last if chain else 0)
            part = replace(config, first=edges[rank], end=edges[rank + 1], embed=rank == 0, head=head)
            engine = TorchEngine(part, pack=pack)
            engine.load()
            self.engines.append(engine)

    def forward(self, spans: Sequence[Span], tokens: Sequence[int], wanted: Sequence[int]) -> Logits:
        """Logits of the rows `wanted`, by way of every boundary."""
        size = self.engines[0].boundary.row_bytes()
        rows = memoryview(bytearray(size * len(tokens)))
        self.engines[0].embed(tokens, rows)
        for engine in self.engines:
            engine.take_tokens(tokens)
        for engine in self.engines[:-1]:
            out = memoryview(bytearray(len(rows)))
            engine.forward(spans, rows, out)
            rows = out
        if self.chain:
            return self.engines[-1].forward_head(spans, rows, wanted)
        back = memoryview(bytearray(size * len(wanted)))
        self.engines[-1].forward(spans, rows, back, wanted)
        return self.engines[0].head(spans, back, wanted)

    def keep(self, slot: int, length: int) -> None:
        for engine in self.engines:
            engine.keep(slot, length)

    def release(self, slot: int) -> None:
        for engine in self.engines:
            engine.release(slot)

    def save(self, slot: int) -> list[bytes]:
        return [engine.save(slot) for engine in self.engines]

    def restore(self, slot: int, states: Sequence[bytes]) -> None:
        for engine, state in zip(self.engines, states, strict=True):
            engine.restore(slot, state)

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


def scenario(model: Stages) -> list[Logits]:
    """A prompt by parts, decodes, several streams in a round, blocks, rollbacks, a slot used again, save and restore.

    Three slots; logits of every row that is asked for, in order. Positions cross multiples of 64.
    """
    found: list[Logits] = []

    def step(spans: Sequence[Span], seed: int, wanted: Sequence[int] | None = None) -> None:
        rows = sum(span.rows for span in spans)
        found.append(model.forward(spans, prompt(seed, rows), range(rows) if wanted is None else wanted))

    step([Span(0, 0, 64)], 1, [63])
    step([Span(0, 64, 11)], 2)
    for position in range(75, 78):
        step([Span(0, position, 1)], position)
    step([Span(1, 0, 60), Span(2, 0, 9)], 3, [59, 68])
    step([Span(0, 78, 1), Span(1, 60, 1), Span(2, 9, 17)], 4)
    step([Span(1, 61, 6), Span(2, 26, 1)], 5)
    model.keep(1, 63)
    step([Span(1, 63, 4), Span(0, 79, 1)], 6)
    model.keep(1, 66)
    model.keep(0, 79)
    step([Span(0, 79, 2), Span(1, 66, 1)], 7)
    model.release(2)
    step([Span(2, 0, 5), Span(0, 81, 1)], 8)
    states = model.save(1)
    step([Span(1, 67, 2)], 9)
    model.release(1)
    model.restore(1, states)
    step([Span(1, 67, 2)], 9)
    assert found[-1].tobytes() == found[-2].tobytes(), "a restored stream goes on as if nothing had been"
    model.release(1)
    model.restore(1, states)
    model.keep(1, 64)
    step([Span(1, 64, 3)], 10)
    return found


def prompt(seed: int, count: int, vocabulary: int = 320) -> list[int]:
    """Random ids without the control tokens."""
    return [int(token) for token in np.random.default_rng(seed).integers(3, vocabulary, count)]
