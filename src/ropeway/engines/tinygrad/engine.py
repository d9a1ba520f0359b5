"""tinygrad as an engine: a GGUF's layers on whatever device tinygrad finds. Rows are f32, one plane; KV is f16.

Rows run one by one, or by blocks of `BLOCK` (the last filled up); each of the two shapes is compiled once and replayed
by tinygrad's JIT with the position as a variable. So the bits of a row depend on which of the two it ran in, not on the
size of a prompt's parts where those are multiples of `BLOCK`. On a CPU every row runs alone, which is faster there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tinygrad import Device, Tensor, TinyJit, UOp, dtypes, nn
from tinygrad.nn.state import load_state_dict

from ropeway.checkpoints.embeddings import EmbeddingTable
from ropeway.checkpoints.families import OUTPUT_NORM
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.engines.base import Capacities, EngineConfig, EngineError, Logits, Span
from ropeway.engines.tinygrad.block import Block, Rotary
from ropeway.engines.tinygrad.weights import (
    ROPE_FACTORS,
    held_bytes,
    layer_names,
    matrix,
    output_name,
    read_facts,
    split_halves,
)
from ropeway.types import Backend, Boundary, EngineKind, KvDtype

BLOCK: Final = 32
"""Rows that a prompt runs by."""
_BACKENDS: Final = {"CPU": Backend.CPU, "CUDA": Backend.CUDA, "NV": Backend.CUDA, "METAL": Backend.METAL,
                    "AMD": Backend.ROCM, "HIP": Backend.ROCM}  # fmt: skip
_DTYPES: Final = {"": dtypes.half, "f16": dtypes.half, "f32": dtypes.float, "bf16": dtypes.bfloat16}


class Stream:
    """One slot: its layers' caches, and the two compiled shapes that write into them."""

    def __init__(self, blocks: Sequence[Block], shape: tuple[int, ...], device: str, block: int) -> None:
        self._blocks = blocks
        self.caches = [Tensor.zeros(*shape, dtype=dtypes.half, device=device).contiguous().realize() for _ in blocks]
        self._compiled = {rows: TinyJit(self._run) for rows in (1, block)}
        self.length = 0

    def _run(self, x: Any, start: UOp) -> Any:
        for block, cache in zip(self._blocks, self.caches, strict=True):
            block.cache = cache
            x = block(x, start)
        return x.realize()

    def forward(self, rows: npt.NDArray[np.float32], start: UOp) -> npt.NDArray[np.float32]:
        """Rows [1 or block, width] through the layers."""
        given = Tensor(rows[None].copy(), device=self.caches[0].device).realize()
        done: npt.NDArray[np.float32] = self._compiled[len(rows)](given, start).numpy()[0]
        return done


class Head:
    """Norm and output matrix."""

    def __init__(self, gguf: GgufFile, epsilon: float, width: int, dtype: Any, device: str, block: int) -> None:
        self._norm = nn.RMSNorm(width, epsilon)
        self._norm.weight = Tensor(matrix(gguf, OUTPUT_NORM), device=device).realize()
        self._output = Tensor(matrix(gguf, output_name(gguf)), device=device).cast(dtype).contiguous().realize()
        self._compiled = {rows: TinyJit(self._run) for rows in (1, block)}

    def _run(self, x: Any) -> Any:
        return (self._norm(x) @ self._output.transpose()).float().realize()

    def logits(self, rows: npt.NDArray[np.float32]) -> Logits:
        """[1 or block, width] to [as many, vocabulary]."""
        given = Tensor(rows.copy(), device=self._output.device).realize()
        done: Logits = self._compiled[len(rows)](given).numpy()
        return done


class TinygradEngine:
    """Layers first..end of a GGUF. Raises EngineError or CheckpointError when it cannot be loaded.

    `block` rows of a prompt run together; 0: what suits the device.
    """

    kind = EngineKind.TINYGRAD
    kv_dtype = KvDtype.F16

    def __init__(self, config: EngineConfig, *, block: int = 0) -> None:
        if config.dtype not in _DTYPES:
            raise EngineError(f"the engine tinygrad keeps weights in f32, f16 or bf16, not {config.dtype}")
        self._config = config
        self._gguf = gguf = GgufFile.open(config.model)
        self._facts = facts = read_facts(gguf)
        self._device = device_name(config.device)
        self.backend = _BACKENDS.get(self._device.split(":")[0], Backend.OTHER)
        self._block = block or (1 if self.backend is Backend.CPU else BLOCK)
        self.boundary = Boundary(facts.width)
        c = config
        self.capacities = Capacities(c.chunk, max(c.context, c.chunk), c.parallel, c.context, c.context * c.parallel)
        self.weights_bytes = held_bytes(gguf, c.first, c.end, embed=c.embed, head=c.head)
        self._positions = c.context + self._block
        """A cache has room for the rows that fill a last block up."""
        self._place = UOp.variable("place", 0, self._positions - 1)
        self._table = EmbeddingTable(gguf) if config.embed else None
        self._blocks: list[Block] = []
        self._head: Head | None = None
        self._streams: dict[int, Stream] = {}

    def load(self) -> None:
        """Dequantize the stage's matrices onto the device, compile both shapes, and run them once."""
        config, facts = self._config, self._facts
        dtype = _DTYPES[config.dtype]
        factors = matrix(self._gguf, ROPE_FACTORS) if ROPE_FACTORS in self._gguf.tensors else None
        rotary = Rotary(facts, self._positions, factors, self._device)
        for layer in range(config.first, config.end):
            block = Block(facts, self._positions, rotary)
            load_state_dict(block, self._weights(layer, dtype), strict=False, verbose=False, realize=False)
            self._blocks.append(block)
        if config.head:
            self._head = Head(self._gguf, facts.epsilon, facts.width, dtype, self._device, self._block)
        self._warm()

    def _weights(self, layer: int, dtype: Any) -> dict[str, Any]:
        """A layer's tensors by the block's own names; norms stay f32."""
        found = {}
        for name in layer_names(self._gguf, layer):
            short = name.split(".", 2)[2]
            values = matrix(self._gguf, name)
            if self._facts.architecture == "llama" and short in ("attn_q.weight", "attn_k.weight"):
                heads = self._facts.heads if short == "attn_q.weight" else self._facts.kv_heads
                values = split_halves(values, heads)
            tensor = Tensor(values, device=self._device)
            found[short] = (tensor if values.ndim == 1 else tensor.cast(dtype).contiguous()).realize()
        return found

    def _warm(self) -> None:
        """Three times each shape: tinygrad compiles at the first call, captures at the second, replays from then on."""
        for rows in sorted({1, self._block}):
            given = np.zeros((rows, self._facts.width), np.float32)
            for _ in range(3):
                self._stream(0).forward(given, self._place.bind(0))
                if self._head is not None:
                    self._head.logits(given)
        self.release(0)

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        """Write the embedding rows of `tokens` into `out`."""
        if self._table is None:
            raise EngineError("this stage was loaded without the embeddings")
        out[:] = self._table.rows(tokens).data.cast("B")

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        """Run the layers; `out` gets every row, or those `wanted`."""
        done = self._run(spans, rows)
        picked = done if wanted is None else done[list(wanted)]
        out[:] = np.ascontiguousarray(picked).data.cast("B")

    def _run(self, spans: Sequence[Span], rows: memoryview) -> npt.NDArray[np.float32]:
        given = np.frombuffer(rows, np.float32).reshape(-1, self._facts.width)
        done = np.empty_like(given)
        at = 0
        for span in spans:
            stream = self._stream(span.slot)
            if span.first != stream.length:
                raise EngineError(f"slot {span.slot} holds {stream.length} positions, {span} follows")
            for first in range(0, span.rows, self._block):
                count = min(self._block, span.rows - first)
                place = self._place.bind(span.first + first)
                part = given[at + first : at + first + count]
                done[at + first : at + first + count] = stream.forward(self._filled(part), place)[:count]
            stream.length += span.rows
            at += span.rows
        return done

    def _stream(self, slot: int) -> Stream:
        stream = self._streams.get(slot)
        if stream is None:
            shape = (2, 1, self._facts.kv_heads, self._positions, self._facts.head_dim)
            stream = self._streams[slot] = Stream(self._blocks, shape, self._device, self._block)
        return stream

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Run the layers and the head over the rows `wanted`."""
        if self._head is None or self._config.end != self._facts.layers:
            raise EngineError("this stage does not hold the last layer and the head together")
        return self._logits(self._run(spans, rows)[list(wanted)])

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Norm and output matrix over the rows `wanted`, just those."""
        return self._logits(np.frombuffer(rows, np.float32).reshape(len(wanted), self._facts.width))

    def _logits(self, rows: npt.NDArray[np.float32]) -> Logits:
        if self._head is None:
            raise EngineError("this stage was loaded without a head")
        logits = np.empty((len(rows), self._facts.vocabulary), np.float32)
        for first in range(0, len(rows), self._block):
            part = rows[first : first + self._block]
            logits[first : first + len(part)] = self._head.logits(self._filled(part))[: len(part)]
        return logits

    def _filled(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """One row, or as many as a block has: what is missing is zeros."""
        if len(rows) in (1, self._block):
            return rows
        return np.concatenate([rows, np.zeros((self._block - len(rows), rows.shape[1]), np.float32)])

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on: the rows that follow write over them, and see none of them."""
        self._stream(slot).length = length

    def release(self, slot: int) -> None:
        """Forget all of the slot; its memory and its compiled steps stay for the next stream."""
        if slot in self._streams:
            self._streams[slot].length = 0

    def save(self, slot: int) -> bytes:
        """K and V of the positions held, layer by layer."""
        stream = self._stream(slot)
        parts = [cache[:, :, :, : stream.length, :].contiguous().numpy().tobytes() for cache in stream.caches]
        return stream.length.to_bytes(8, "little") + b"".join(parts)

    def restore(self, slot: int, state: bytes) -> None:
        """Put a saved state into an empty slot."""
        stream = self._stream(slot)
        length = int.from_bytes(state[:8], "little")
        shape = (2, 1, self._facts.kv_heads, length, self._facts.head_dim)
        size = int(np.prod(shape)) * 2
        if length > self._config.context or len(state) != 8 + size * len(stream.caches):
            raise EngineError("tinygrad refused the saved state: it is from another model or context")
        for index, cache in enumerate(stream.caches):
            held = np.frombuffer(state, np.float16, size // 2, 8 + index * size).reshape(shape)
            cache[:, :, :, :length, :].assign(Tensor(held.copy(), device=self._device)).realize()
        stream.length = length

    def close(self) -> None:
        """Let go of everything."""
        self._streams.clear()
        self._blocks.clear()
        self._head = None


def device_name(wanted: str) -> str:
    """tinygrad's own name of the device that was asked for, or of the best that it finds. Raises EngineError."""
    try:
        name: str = Device.canonicalize(wanted.upper() or None)
        Device[name]
    except (RuntimeError, ImportError, OSError, ValueError, KeyError, AttributeError, AssertionError) as error:
        raise EngineError(f"tinygrad cannot open the device {wanted or 'it would choose'}: {error}") from None
    if name == "CPU" and "CPU_LLVM" not in os.environ and shutil.which(os.environ.get("CC", "clang")) is None:
        raise EngineError("tinygrad's CPU device needs clang (apt install clang), or CPU_LLVM=1 with LLVM's library")
    return name
