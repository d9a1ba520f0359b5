"""MLX as an engine: mlx-lm's models, layers first..end, from safetensors directories, MLX-quantized ones too.

Each stream's rows run by themselves, so a stream's bits do not depend on its company. Rows are in the layout's dtype,
converted at this edge where the model computes in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np

from ropeway.checkpoints.directory import DirectoryCheckpoint
from ropeway.engines.base import NO_STATES, Capacities, EngineConfig, EngineError, Logits, Span
from ropeway.engines.mlx.model import RangeModel
from ropeway.engines.mlx.stream import Stream
from ropeway.types import Backend, EngineKind, KvDtype, RowDtype

_MX: Final = {RowDtype.F32: mx.float32, RowDtype.F16: mx.float16, RowDtype.BF16: mx.bfloat16}
_KV: Final = {RowDtype.F32: KvDtype.F32, RowDtype.F16: KvDtype.F16, RowDtype.BF16: KvDtype.BF16}
_WORD: Final = {RowDtype.F32: np.uint32, RowDtype.F16: np.uint16, RowDtype.BF16: np.uint16}


class MlxEngine:
    """Layers first..end of a directory. Raises EngineError or CheckpointError when it cannot be loaded."""

    kind = EngineKind.MLX

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._checkpoint = checkpoint = DirectoryCheckpoint(Path(config.model))
        own = checkpoint.boundary
        labels = {dtype.label: dtype for dtype in RowDtype}
        if config.dtype and config.dtype not in labels:
            raise EngineError(f"the engine mlx computes in f32, bf16 or f16, not {config.dtype}")
        self._dtype = labels[config.dtype] if config.dtype else own.row_dtype
        self.boundary = config.boundary if config.boundary is not None else own
        self.kv_dtype = _KV[self._dtype]
        self.backend = choose_device(config.device)
        c = config
        # A window that has turned round can be resumed no better than a recurrent state.
        windows = "sliding_attention" in checkpoint.text_config.get("layer_types", ())
        recurrent = windows or "linear_num_value_heads" in checkpoint.text_config
        self.capacities = Capacities(
            c.chunk, max(c.context, c.chunk), c.parallel, c.context, c.context * c.parallel,
            c.parallel if recurrent else NO_STATES,
        )  # fmt: skip
        self.weights_bytes = 0
        self._model: RangeModel | None = None
        self._streams: dict[int, Stream] = {}

    def load(self) -> None:
        """Load the range, and run a row and a few once."""
        c = self._config
        dtype = _MX[self._dtype] if c.dtype else None
        self._model = RangeModel(self._checkpoint, c.first, c.end, embed=c.embed, head=c.head, dtype=dtype)
        self.weights_bytes = self._model.weights_bytes
        row = memoryview(bytearray(self.boundary.row_bytes()))
        self.forward([Span(0, 0, 1)], row, memoryview(bytearray(len(row))))
        self.release(0)

    @property
    def _ranged(self) -> RangeModel:
        if self._model is None:
            raise EngineError("this stage has not been loaded")
        return self._model

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        """Write the embedding rows of `tokens` into `out`."""
        if not self._config.embed:
            raise EngineError("this stage was loaded without the embeddings")
        out[:] = self._given(self._ranged.embed(mx.array(list(tokens), mx.int32)))

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        """Run the layers; `out` gets every row, or those `wanted`."""
        done = self._run(spans, rows)
        if wanted is not None:
            if not wanted:
                return
            done = done[mx.array(list(wanted), mx.int32)]
        out[:] = self._given(done)

    def _run(self, spans: Sequence[Span], rows: memoryview) -> Any:
        given = self._taken(rows)
        done = []
        at = 0
        for span in spans:
            stream = self._stream(span.slot)
            if span.first != stream.length:
                raise EngineError(f"slot {span.slot} holds {stream.length} positions, {span} follows")
            done.append(stream.forward(given[at : at + span.rows]))
            at += span.rows
        return done[0] if len(done) == 1 else mx.concatenate(done)

    def _stream(self, slot: int) -> Stream:
        stream = self._streams.get(slot)
        if stream is None:
            stream = self._streams[slot] = Stream(self._ranged)
        return stream

    def _taken(self, rows: memoryview) -> Any:
        """Rows off the wire, in the dtype that the model computes in."""
        row_dtype = self.boundary.row_dtype
        words = np.frombuffer(rows, _WORD[row_dtype]).reshape(-1, self.boundary.hidden)
        return mx.array(words).view(_MX[row_dtype]).astype(_MX[self._dtype])

    def _given(self, rows: Any) -> memoryview:
        """Rows as the wire has them."""
        words = mx.contiguous(rows.astype(_MX[self.boundary.row_dtype])).view(mx.uint8)
        mx.eval(words)
        return np.asarray(words).reshape(-1).data

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Run the layers and the head over the rows `wanted`."""
        if not self._config.head or self._config.end != self._checkpoint.layers:
            raise EngineError("this stage does not hold the last layer and the head together")
        done = self._run(spans, rows)
        if not wanted:
            return np.empty((0, self._vocabulary), np.float32)
        # Through the wire's dtype and back, as rows of a ring come to the head.
        return self.head(spans, self._given(done[mx.array(list(wanted), mx.int32)]), wanted)

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Norm and output matrix over the rows `wanted`, just those, one at a time: its bits depend on their number."""
        if not self._config.head:
            raise EngineError("this stage was loaded without a head")
        given = self._taken(rows)
        return np.concatenate([np.array(self._ranged.logits(given[at : at + 1])) for at in range(len(wanted))])

    @property
    def _vocabulary(self) -> int:
        return self._checkpoint.integer("vocab_size")

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on."""
        self._stream(slot).keep(length)

    def release(self, slot: int) -> None:
        """Forget all of the slot."""
        self._streams.pop(slot, None)

    def save(self, slot: int) -> bytes:
        """The slot's caches as bytes."""
        return self._stream(slot).save()

    def restore(self, slot: int, state: bytes) -> None:
        """Put a saved state into an empty slot."""
        self.release(slot)
        self._stream(slot).restore(state)

    def close(self) -> None:
        """Let go of everything."""
        self._streams.clear()
        self._model = None


def choose_device(wanted: str) -> Backend:
    """Make MLX compute where asked, or where it would by itself. Raises EngineError for a device that it has not."""
    if wanted not in ("", "cpu", "gpu", "metal", "cuda"):
        raise EngineError(f"the engine mlx computes on cpu or gpu, not {wanted}")
    if wanted:
        try:
            mx.set_default_device(mx.cpu if wanted == "cpu" else mx.gpu)
        except ValueError as error:
            raise EngineError(f"mlx cannot compute on {wanted}: {error}") from None
    if mx.default_device().type == mx.DeviceType.cpu:
        return Backend.CPU
    return Backend.METAL if mx.metal.is_available() else Backend.CUDA
