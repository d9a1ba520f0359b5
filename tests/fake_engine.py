"""An engine without a model: what a row is depends on every id that its stream has seen, in order, in every layer.

So a wrong slot, stale state, a rollback that one stage missed or a part in the wrong place gives another reply. A row
carries its layer, its position and a checksum, so that rows which were overwritten in flight are refused at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ropeway.engines.base import Capacities, EngineConfig, EngineError, Logits, Span
from ropeway.types import Backend, Boundary, EngineKind, KvDtype

VOCABULARY = 61
HIDDEN = 8
"""The least: a row is 32 bytes. Wider rows say the same again and again."""
_WORD = (1 << 64) - 1
_ROW = struct.Struct("<4Q")
"""value, position, layers behind it, checksum."""
_ODD = np.random.default_rng(7).integers(1, 1 << 62, VOCABULARY, np.uint64) * np.uint64(2) + np.uint64(1)


def mix(*words: int) -> int:
    """64 bits of everything, in order (FNV-like with a final shuffle; the bits are what matters, not the quality)."""
    value = 0xCBF29CE484222325
    for word in words:
        value = ((value ^ word) * 0x9E3779B97F4A7C15 + 0x1234567) & _WORD
        value ^= value >> 29
    return value


def embedded(token: int) -> int:
    """A token's row before the first layer."""
    return mix(token, 99)


def values_of(ids: Sequence[int], layers: int) -> list[int]:
    """What every row of a stream comes to behind the last layer."""
    before = [0] * layers
    values = []
    for token in ids:
        value = embedded(token)
        for layer in range(layers):
            before[layer] = mix(before[layer], value, layer)
            value = before[layer]
        values.append(value)
    return values


def logits_of(values: Sequence[int]) -> Logits:
    """The head: one row of logits a value, [len(values), VOCABULARY]."""
    column = np.array(values, np.uint64)[:, None]
    return ((column * _ODD) >> np.uint64(44)).astype(np.float32) / np.float32(1 << 16)


@cache
def reply_alone(prompt: tuple[int, ...], count: int, layers: int, stop_ids: frozenset[int] = frozenset()) -> list[int]:
    """The greedy reply to a prompt when nothing else is there."""
    before = [0] * layers
    reply: list[int] = []
    for token in prompt:
        value = _through(before, token)
    while len(reply) < count and not (reply and reply[-1] in stop_ids):
        reply.append(int(logits_of([value])[0].argmax()))
        value = _through(before, reply[-1])
    return reply


def _through(before: list[int], token: int) -> int:
    value = embedded(token)
    for layer in range(len(before)):
        value = before[layer] = mix(before[layer], value, layer)
    return value


@dataclass(frozen=True, slots=True)
class Shape:
    """What the fake model and its stages are like."""

    layers: int = 4
    hidden: int = HIDDEN
    chunk: int = 8
    parallel: int = 4
    context: int = 96
    max_rows: int = 96

    @property
    def boundary(self) -> Boundary:
        """Rows of f32, one plane."""
        return Boundary(self.hidden)


class FakeEngine:
    """Layers first..end of the fake model. Keeps the contract of engines/base.py and refuses whoever does not."""

    kind = EngineKind.WORKER
    backend = Backend.CPU
    kv_dtype = KvDtype.F32

    def __init__(self, shape: Shape, first: int, end: int, *, embed: bool, head: bool) -> None:
        self._shape = shape
        self._first, self._end = first, end
        self._embed, self._head = embed, head
        self.boundary = shape.boundary
        kv_rows = shape.context * shape.parallel
        self.capacities = Capacities(shape.chunk, shape.max_rows, shape.parallel, shape.context, kv_rows)
        self.weights_bytes = 1000 * (end - first)
        self.slots: dict[int, list[tuple[int, ...]]] = {}
        """By slot, for each position what every layer of ours remembers of all up to it."""
        self.loaded = self.closed = False
        self.parts: list[tuple[Span, ...]] = []
        """The spans of every forward."""
        self.before_forward: Callable[[], None] = lambda: None
        """Called in the thread that computes, before every forward: may wait, may raise EngineError."""
        self.before_save: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, shape: Shape, config: EngineConfig) -> FakeEngine:
        """The stage that a configuration asks for."""
        return cls(shape, config.first, config.end, embed=config.embed, head=config.head)

    def load(self) -> None:
        self.loaded = True

    def close(self) -> None:
        self.closed = True

    @property
    def held(self) -> int:
        """Positions that all slots hold."""
        return sum(map(len, self.slots.values()))

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        if not self._embed:
            raise EngineError("this stage has no embeddings")
        self._write([(embedded(token), 0, 0) for token in tokens], out)

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        if wanted is not None and self._end != self._shape.layers:
            raise EngineError("only the stage with the last layer can leave rows out")
        run = self._run(spans, rows)
        self._write(run if wanted is None else [run[row] for row in wanted], out)

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        if not self._head or self._end != self._shape.layers:
            raise EngineError("this stage does not hold the last layer and the head together")
        run = self._run(spans, rows)
        return logits_of([run[row][0] for row in wanted])

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        if not self._head:
            raise EngineError("this stage has no head")
        read = self._read(rows)
        positions = [span.first + row for span in spans for row in range(span.rows)]
        if [position for _, position, _ in read] != [positions[row] for row in wanted]:
            raise EngineError(f"the head got the positions {[p for _, p, _ in read]}, not those wanted of {positions}")
        if any(layers != self._shape.layers for _, _, layers in read):
            raise EngineError("the head got rows that have not been through every layer")
        return logits_of([value for value, _, _ in read])

    def keep(self, slot: int, length: int) -> None:
        if not 0 < length < len(self.slots[slot]):
            raise EngineError(f"slot {slot} holds {len(self.slots[slot])} positions, {length} are to be kept")
        del self.slots[slot][length:]

    def release(self, slot: int) -> None:
        self.slots.pop(slot, None)

    def save(self, slot: int) -> bytes:
        self.before_save()
        return np.array(self.slots[slot], np.uint64).tobytes()

    def restore(self, slot: int, state: bytes) -> None:
        if slot in self.slots:
            raise EngineError(f"slot {slot} is not empty")
        held = np.frombuffer(state, np.uint64).reshape(-1, self._end - self._first)
        self.slots[slot] = [tuple(row) for row in held.tolist()]

    def _run(self, spans: Sequence[Span], rows: memoryview) -> list[tuple[int, int, int]]:
        self.before_forward()
        self.parts.append(tuple(spans))
        given = self._read(rows)
        if len(given) != sum(span.rows for span in spans) or len(given) > self._shape.chunk:
            raise EngineError(f"{len(given)} rows for {spans}, at most {self._shape.chunk}")
        if len({span.slot for span in spans}) != len(spans) or any(s.slot >= self._shape.parallel for s in spans):
            raise EngineError(f"a slot twice, or one too high: {spans}")
        done: list[tuple[int, int, int]] = []
        for span in spans:
            held = self.slots.setdefault(span.slot, [])
            if len(held) != span.first or span.first + span.rows > self._shape.context:
                raise EngineError(f"slot {span.slot} holds {len(held)} positions, {span} follows")
            for position in range(span.first, span.first + span.rows):
                value, at, layers = given[len(done)]
                if layers != self._first or (layers and at != position):
                    raise EngineError(f"layer {self._first}, position {position} got a row of {layers}, {at}")
                before = held[-1] if held else (0,) * (self._end - self._first)
                remembered = []
                for index, layer in enumerate(range(self._first, self._end)):
                    value = mix(before[index], value, layer)
                    remembered.append(value)
                held.append(tuple(remembered))
                done.append((value, position, self._end))
        if self.held > self.capacities.kv_rows:
            raise EngineError("no room")
        return done

    def _write(self, values: Sequence[tuple[int, int, int]], out: memoryview) -> None:
        size = self.boundary.row_bytes()
        if len(out) != len(values) * size:
            raise EngineError(f"{len(out)} bytes for {len(values)} rows of {size}")
        words = np.array([(*row, mix(*row)) for row in values], np.uint64).reshape(-1, 4)
        out[:] = np.tile(words, size // _ROW.size).tobytes()

    def _read(self, rows: memoryview) -> list[tuple[int, int, int]]:
        size = self.boundary.row_bytes()
        words: npt.NDArray[np.uint64] = np.frombuffer(rows, np.uint64).reshape(-1, size // _ROW.size, 4)
        if not (words == words[:, :1]).all():
            raise EngineError("a row that was overwritten")
        read = []
        for value, position, layers, check in words[:, 0].tolist():
            if mix(value, position, layers) != check:
                raise EngineError("a row that is not what was written")
            read.append((value, position, layers))
        return read
