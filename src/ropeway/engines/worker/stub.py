"""An engine without a model, for tests of everything but the model: rows derived from SHA-256.

A row depends on every row that its stream had before, in each layer, so a wrong slot, a stale state or a layer too few
gives other rows. 16 values and 32 tokens unless told; every value is exact in bf16, f16 and f32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from ropeway.engines.base import Capacities, EngineConfig, EngineError, Logits, Span
from ropeway.types import Backend, Boundary, EngineKind, KvDtype, RowDtype

HIDDEN: Final = 16
VOCABULARY: Final = 32
LAYERS: Final = 8
_DIGEST: Final = 32


class StubEngine:
    """Layers first..end of a model that is nothing but hashes."""

    kind = EngineKind.WORKER
    backend = Backend.CPU
    kv_dtype = KvDtype.F32
    weights_bytes = 0

    def __init__(
        self, config: EngineConfig, *, hidden: int = HIDDEN, vocabulary: int = VOCABULARY, layers: int = LAYERS
    ) -> None:
        self._config, self._vocabulary, self._layers = config, vocabulary, layers
        self.boundary = Boundary(hidden, 1, RowDtype.F32)
        c = config
        self.capacities = Capacities(c.chunk, max(c.context, c.chunk), c.parallel, c.context, c.context * c.parallel)
        self._slots: dict[int, list[bytes]] = {}
        """By slot, for each position one digest a layer."""

    def load(self) -> None:
        """Nothing to load."""

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        """A row a token."""
        if not self._config.embed:
            raise EngineError("this stage was loaded without the embeddings")
        out[:] = b"".join([self._row(hashlib.sha256(b"token %d" % token).digest()) for token in tokens])

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        """Run the layers."""
        done = self._run(spans, rows)
        out[:] = b"".join(done if wanted is None else [done[row] for row in wanted])

    def _run(self, spans: Sequence[Span], rows: memoryview) -> list[bytes]:
        size = self.boundary.row_bytes()
        given = [bytes(rows[at : at + size]) for at in range(0, len(rows), size)]
        done: list[bytes] = []
        for span in spans:
            held = self._slots.setdefault(span.slot, [])
            if len(held) != span.first:
                raise EngineError(f"slot {span.slot} holds {len(held)} positions, {span} follows")
            for _ in range(span.rows):
                row = given[len(done)]
                before = held[-1] if held else bytes(_DIGEST * (self._config.end - self._config.first))
                digests = []
                for index, layer in enumerate(range(self._config.first, self._config.end)):
                    past = before[index * _DIGEST : (index + 1) * _DIGEST]
                    digests.append(hashlib.sha256(b"layer %d" % layer + past + row).digest())
                    row = self._row(digests[-1])
                held.append(b"".join(digests))
                done.append(row)
        return done

    def _row(self, digest: bytes) -> bytes:
        count = self.boundary.hidden
        data = b"".join(hashlib.sha256(digest + bytes([part])).digest() for part in range(-(-count // _DIGEST)))
        values = np.frombuffer(data[:count], np.int8).astype(np.float32) / np.float32(64)
        return values.tobytes()

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Layers and head."""
        if not self._config.head or self._config.end != self._layers:
            raise EngineError("this stage does not hold the last layer and the head together")
        done = self._run(spans, rows)
        return self._logits([done[row] for row in wanted])

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """The head over rows that came back."""
        if not self._config.head:
            raise EngineError("this stage was loaded without a head")
        size = self.boundary.row_bytes()
        return self._logits([bytes(rows[at : at + size]) for at in range(0, len(wanted) * size, size)])

    def _logits(self, rows: Sequence[bytes]) -> Logits:
        logits = np.empty((len(rows), self._vocabulary), np.float32)
        for at, row in enumerate(rows):
            seed = hashlib.sha256(b"head" + row).digest()
            parts = [
                hashlib.sha256(seed + part.to_bytes(4, "little")).digest() for part in range(-(-self._vocabulary // 32))
            ]
            logits[at] = np.frombuffer(b"".join(parts)[: self._vocabulary], np.uint8).astype(np.float32) / 16
        return logits

    def keep(self, slot: int, length: int) -> None:
        """Forget the positions from `length` on."""
        del self._slots[slot][length:]

    def release(self, slot: int) -> None:
        """Forget all of the slot."""
        self._slots.pop(slot, None)

    def save(self, slot: int) -> bytes:
        """The digests."""
        return b"".join(self._slots[slot])

    def restore(self, slot: int, state: bytes) -> None:
        """Put digests back."""
        size = _DIGEST * (self._config.end - self._config.first)
        if len(state) % size:
            raise EngineError(f"a state of {len(state)} bytes, expected a multiple of {size}")
        self._slots[slot] = [state[at : at + size] for at in range(0, len(state), size)]

    def close(self) -> None:
        """Forget everything."""
        self._slots.clear()


class StubText:
    """Words to ids by their hash, and ids to made-up words."""

    def __init__(self, vocabulary: int = VOCABULARY) -> None:
        self._vocabulary = vocabulary

    def tokenize(self, text: str) -> list[int]:
        """One id a word."""
        return [hashlib.sha256(word.encode()).digest()[0] % self._vocabulary for word in text.split()]

    def detokenize(self, tokens: Sequence[int]) -> str:
        """A word an id."""
        return " ".join(f"w{token}" for token in tokens)
