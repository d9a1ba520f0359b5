"""A split model driven by hand beside the whole model: the same batches into both, the bits compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from ropeway.engines.base import Engine, EngineConfig, Logits, Span
from ropeway.engines.llamacpp.engine import LlamaCppEngine
from ropeway.engines.llamacpp.whole import WholeModel


class Split:
    """Stages of one checkpoint in this process; `forward` sends rows through all of them."""

    def __init__(self, config: EngineConfig, cuts: tuple[int, ...], *, chain: bool, tap: bool | None) -> None:
        edges = (0, *cuts, config.end)
        last = len(edges) - 2
        self.chain = chain
        self.stages: list[Engine] = []
        for rank in range(last + 1):
            head = rank == (last if chain else 0)
            part = replace(config, first=edges[rank], end=edges[rank + 1], embed=rank == 0, head=head)
            engine = LlamaCppEngine(part, tap=tap)
            engine.load()
            self.stages.append(engine)

    def forward(self, spans: Sequence[Span], tokens: Sequence[int], wanted: Sequence[int]) -> Logits:
        """Logits of the rows `wanted`, by way of every boundary."""
        size = self.stages[0].boundary.row_bytes()
        rows = memoryview(bytearray(size * len(tokens)))
        self.stages[0].embed(tokens, rows)
        for engine in self.stages[:-1]:
            out = memoryview(bytearray(len(rows)))
            engine.forward(spans, rows, out)
            rows = out
        if self.chain:
            return self.stages[-1].forward_head(spans, rows, wanted)
        back = memoryview(bytearray(size * len(wanted)))
        self.stages[-1].forward(spans, rows, back, wanted)
        return self.stages[0].head(spans, back, wanted)

    def keep(self, slot: int, length: int) -> None:
        for engine in self.stages:
            engine.keep(slot, length)

    def release(self, slot: int) -> None:
        for engine in self.stages:
            engine.release(slot)

    def close(self) -> None:
        for engine in self.stages:
            engine.close()


class Pair:
    """The split and the whole: each step runs in both and must give the same bits."""

    def __init__(self, split: Split, whole: WholeModel) -> None:
        self.split, self.whole = split, whole

    def step(self, spans: Sequence[Span], tokens: Sequence[int], wanted: Sequence[int]) -> Logits:
        ours = self.split.forward(spans, tokens, wanted)
        theirs = self.whole.forward(spans, tokens, wanted)
        assert ours.shape == theirs.shape
        assert np.isfinite(theirs).all()
        assert theirs.std() > 0
        assert ours.tobytes() == theirs.tobytes(), f"largest difference {np.abs(ours - theirs).max()} at {spans}"
        return ours

    def keep(self, slot: int, length: int) -> None:
        self.split.keep(slot, length)
        self.whole.keep(slot, length)

    def release(self, slot: int) -> None:
        self.split.release(slot)
        self.whole.release(slot)


def tiny_config(path: Path, layers: int, *, parallel: int = 1, chunk: int = 32) -> EngineConfig:
    """A whole tiny model on one thread."""
    return EngineConfig(str(path), 0, layers, True, True, context=256, parallel=parallel, chunk=chunk, threads=1)


@contextmanager
def pair(
    config: EngineConfig, cuts: tuple[int, ...], *, chain: bool = False, tap: bool | None = None
) -> Iterator[Pair]:
    """Both, loaded; freed on the way out."""
    split = Split(config, cuts, chain=chain, tap=tap)
    whole = WholeModel(config)
    try:
        yield Pair(split, whole)
    finally:
        split.close()
        whole.close()
