"""Faults to plant into one rank of a real ring: wrong weights, rounded rows, a missing layer, a stale state."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.engines.base import Capacities, Engine, EngineConfig, Logits, Span
from ropeway.types import Backend, Boundary, EngineKind, KvDtype

Make = Callable[[EngineConfig], Engine]

_SCALES = {GgmlType.Q8_0: ((34, 0),), GgmlType.Q4_0: ((18, 0),), GgmlType.Q4_1: ((20, 0), (20, 2))}
"""Bytes of a block, and where its f16 scales lie."""


def altered(path: Path, layer: int, share: float, to: Path) -> Path:
    """A copy of a GGUF with every matrix of one layer larger by `share`, by way of its blocks' scales."""
    shutil.copyfile(path, to)
    file = np.memmap(to, np.uint8, "r+")
    for name, info in GgufFile.open(path).tensors.items():
        if not name.startswith(f"blk.{layer}.") or len(info.shape) < 2:
            continue
        raw = file[info.offset : info.offset + info.nbytes]
        for size, at in _SCALES[info.type]:
            scales = raw.reshape(-1, size)[:, at : at + 2].copy().view(np.float16)
            raw.reshape(-1, size)[:, at : at + 2] = (scales * np.float16(1 + share)).view(np.uint8)
    file.flush()
    return to


class Wrapped:
    """An engine that hands everything on; what it has in common with the engine inside is not worth telling apart."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self.kind: EngineKind = inner.kind
        self.backend: Backend = inner.backend
        self.kv_dtype: KvDtype = inner.kv_dtype
        self.boundary: Boundary = inner.boundary
        self.capacities: Capacities = inner.capacities
        self.weights_bytes = inner.weights_bytes

    def load(self) -> None:
        self._inner.load()

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        self._inner.embed(tokens, out)

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        self._inner.forward(spans, rows, out, wanted)

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        return self._inner.forward_head(spans, rows, wanted)

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        return self._inner.head(spans, rows, wanted)

    def keep(self, slot: int, length: int) -> None:
        self._inner.keep(slot, length)

    def release(self, slot: int) -> None:
        self._inner.release(slot)

    def save(self, slot: int) -> bytes:
        return self._inner.save(slot)

    def restore(self, slot: int, state: bytes) -> None:
        self._inner.restore(slot, state)

    def close(self) -> None:
        self._inner.close()


class Rounded(Wrapped):
    """Rows leave rounded to f16."""

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        self._inner.forward(spans, rows, out, wanted)
        values = np.frombuffer(out, np.float32)
        values[:] = values.astype(np.float16).astype(np.float32)


class Stale(Wrapped):
    """After a rollback the last position that stays holds what the row behind it, which was refused, had left."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._last: dict[int, tuple[int, bytes]] = {}
        self.rollbacks = 0

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        size = self.boundary.row_bytes()
        at = 0
        for span in spans:
            held = self._last.get(span.slot, (span.first, b""))
            mine = bytes(rows[at * size : (at + span.rows) * size])
            joined = held[0] + len(held[1]) // size == span.first
            self._last[span.slot] = (held[0], held[1] + mine) if joined else (span.first, mine)
            at += span.rows
        self._inner.forward(spans, rows, out, wanted)

    def keep(self, slot: int, length: int) -> None:
        size = self.boundary.row_bytes()
        first, rows = self._last[slot]
        refused = rows[(length - first) * size : (length - first + 1) * size]
        self._last[slot] = (first, rows[: (length - first) * size])
        self._inner.keep(slot, length - 1)
        self._inner.forward([Span(slot, length - 1, 1)], memoryview(refused), memoryview(bytearray(size)), None)
        self.rollbacks += 1


def one_layer_less(config: EngineConfig, make: Make) -> Engine:
    """The stage without its first layer."""
    return make(replace(config, first=config.first + 1))
