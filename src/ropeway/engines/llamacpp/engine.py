"""llama.cpp as an engine: a stage is its own small GGUF, run by the unmodified library, rows in and rows out.

See docs/architecture.md, "How llama.cpp runs a layer range". Rows are f32, one plane.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ropeway.checkpoints.embeddings import EmbeddingTable
from ropeway.checkpoints.families import EMBEDDINGS, OUTPUT, OUTPUT_NORM, layer_count
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.slicing import slice_stage
from ropeway.engines.base import Capacities, EngineConfig, EngineError, Logits, Span
from ropeway.engines.cores import usable_cores
from ropeway.engines.llamacpp import binding
from ropeway.engines.llamacpp.alone import ROW_BY_ROW
from ropeway.engines.llamacpp.context import Context, ContextSize
from ropeway.engines.llamacpp.pieces import Piece, cut_batch
from ropeway.engines.llamacpp.tap import OutputTap
from ropeway.types import Backend, Boundary, EngineKind, KvDtype

LAYER_INPUT_ARCHITECTURES = frozenset({"llama", "qwen3"})
"""Architectures whose graphs keep their layers' inputs, so that a stage's output is the input of one more layer of
zeros. The others, and the model's last layer, are read through the eval callback."""

PROMPT_GRAIN = 64
"""Rows of a prompt that llama.cpp's CPU attention takes as one tile: where a part is a multiple of it, every row goes
through the tiled kernel, in any other part none does, and the two kernels give other bits."""

_DEVICE_BACKENDS = {"CUDA": Backend.CUDA, "ROCm": Backend.ROCM, "HIP": Backend.ROCM, "Vulkan": Backend.VULKAN,
                    "Metal": Backend.METAL, "MTL": Backend.METAL}  # fmt: skip
_ACCELERATORS = (1, 2)
"""ggml_backend_dev_type: a GPU, an integrated GPU."""


class LlamaCppEngine:
    """Layers first..end of a GGUF. Raises EngineError or CheckpointError when it cannot be loaded.

    `tap` forces the eval callback (True) or, before the last layer, the library's own extraction (False); None lets
    the architecture decide.
    """

    kind = EngineKind.LLAMACPP
    kv_dtype = KvDtype.F16

    def __init__(self, config: EngineConfig, *, tap: bool | None = None) -> None:
        self._config = config
        self._llama = binding.load()
        self._gguf = gguf = GgufFile.open(config.model)
        self._layers = layer_count(gguf)
        self._held = config.end - config.first
        self._last = config.end == self._layers
        self._fused = config.head and self._last
        self._use_tap = self._last or (gguf.architecture not in LAYER_INPUT_ARCHITECTURES if tap is None else tap)
        self.backend, self._gpu_layers = offload(config.gpu_layers)
        self.boundary = Boundary(gguf.metadata.integer(f"{gguf.architecture}.embedding_length"))
        self.capacities = Capacities(
            chunk=config.chunk,
            max_rows=max(config.context, config.chunk),
            parallel=config.parallel,
            context=config.context,
            kv_rows=config.context * config.parallel,
        )
        self.weights_bytes = _held_bytes(gguf, config)
        output = gguf.tensors.get(OUTPUT, gguf.tensors[EMBEDDINGS])
        self._head_bits_stand_alone = output.type in ROW_BY_ROW
        self._tap: OutputTap | None = None
        self._contexts: list[Context] = []
        self._table = EmbeddingTable(gguf) if config.embed else None

    def load(self) -> None:
        """Cut the stage's file out of the checkpoint (once), load it, and run it once."""
        config, gguf = self._config, self._gguf
        size = stage_size(config, self._gpu_layers)
        callback = None
        if self._use_tap and not self._fused:
            self._tap = OutputTap(self._llama, f"l_out-{self._held - 1}")
            callback = self._tap.callback
        whole = self._fused and config.first == 0
        path = gguf.path if whole else slice_stage(gguf.path, config.first, config.end, head=self._fused)
        self._contexts = [Context(path, size, callback)]
        if self._tap is None and not self._fused:
            self._stage.want_layer_input(self._held)
        if config.head and not self._fused:
            head_size = ContextSize(config.chunk, 1, config.chunk, size.threads, self._gpu_layers)
            self._contexts.append(Context(slice_stage(gguf.path, self._layers, self._layers, head=True), head_size))
        self._warm()

    @property
    def _stage(self) -> Context:
        return self._contexts[0]

    def _warm(self) -> None:
        """Run one row, so that the first request does not pay for the first touch of every weight."""
        row = memoryview(bytearray(self.boundary.row_bytes()))
        if self._fused:
            self.forward_head([Span(0, 0, 1)], row, [0])
        else:
            self.forward([Span(0, 0, 1)], row, memoryview(bytearray(len(row))))
        self.release(0)
        if len(self._contexts) > 1:
            self.head([Span(0, 0, 1)], row, [0])

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        """Write the embedding rows of `tokens` into `out`."""
        if self._table is None:
            raise EngineError("this stage was loaded without the embeddings")
        out[:] = self._table.rows(tokens).data.cast("B")

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        """Run the layers; `out` gets the last layer's output rows, all or those `wanted`."""
        if wanted is not None and not self._last:
            raise EngineError("only the stage with the last layer can leave rows out")
        size = self.boundary.row_bytes()
        for piece in cut_batch(spans, wanted if self._last else ()):
            places = piece.rows if wanted is None else piece.places or ()
            if isinstance(places, range):
                self._run(piece, self._rows_of(piece, rows), out[places.start * size : places.stop * size])
                continue
            part = memoryview(bytearray(len(places) * size))
            self._run(piece, self._rows_of(piece, rows), part)
            for index, place in enumerate(places):
                out[place * size : (place + 1) * size] = part[index * size : (index + 1) * size]

    def _run(self, piece: Piece, rows: memoryview, out: memoryview) -> None:
        if self._tap is None:
            self._stage.decode_rows(piece, rows)
            self._stage.read_layer_input(self._held, len(piece.rows), out)
            return
        self._tap.arm((len(piece.rows), len(out)), out)
        self._stage.decode_rows(piece, rows)
        self._tap.disarm()

    def _rows_of(self, piece: Piece, rows: memoryview) -> memoryview:
        size = self.boundary.row_bytes()
        if isinstance(piece.rows, range):
            return rows[piece.rows.start * size : piece.rows.stop * size]
        return memoryview(b"".join([rows[row * size : (row + 1) * size] for row in piece.rows]))

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Run the layers and the head over the rows `wanted`."""
        if not self._fused:
            raise EngineError("this stage does not hold the last layer and the head together")
        pieces = cut_batch(spans, wanted)
        if len(pieces) == 1 and pieces[0].whole:
            self._stage.decode_rows(pieces[0], rows)
            return self._stage.read_logits(len(wanted))
        logits = np.empty((len(wanted), self._stage.vocabulary), np.float32)
        for piece in pieces:
            self._stage.decode_rows(piece, self._rows_of(piece, rows))
            if piece.places:
                logits[list(piece.places)] = self._stage.read_logits(len(piece.places))
        return logits

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Norm and output matrix over a part's rows `wanted`, in the whole model's batches where bits need it."""
        if len(self._contexts) < 2:
            raise EngineError("this stage was loaded without a head of its own")
        head = self._contexts[1]
        count = len(wanted)
        if self._head_bits_stand_alone or len(spans) == 1:
            groups: list[Sequence[int]] = [range(count)]
        else:
            groups = [piece.places for piece in cut_batch(spans, wanted) if piece.places]
        if len(groups) == 1:
            head.release(-1)
            head.decode_rows(cut_batch([Span(0, 0, count)], None)[0], rows)
            return head.read_logits(count)
        logits = np.empty((count, head.vocabulary), np.float32)
        size = self.boundary.row_bytes()
        for places in groups:
            part = b"".join([rows[i * size : (i + 1) * size] for i in places])
            head.release(-1)
            head.decode_rows(cut_batch([Span(0, 0, len(places))], None)[0], memoryview(part))
            logits[list(places)] = head.read_logits(len(places))
        return logits

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on."""
        self._stage.keep(slot, length)

    def release(self, slot: int) -> None:
        """Forget all of the slot."""
        self._stage.release(slot)

    def save(self, slot: int) -> bytes:
        """The slot's state, as llama.cpp writes it."""
        return self._stage.save(slot)

    def restore(self, slot: int, state: bytes) -> None:
        """Put a saved state into an empty slot."""
        self._stage.restore(slot, state)

    def close(self) -> None:
        """Free the contexts and models."""
        for context in self._contexts:
            context.close()
        self._contexts = []


def _held_bytes(gguf: GgufFile, config: EngineConfig) -> int:
    """Bytes of the checkpoint's tensors that a stage holds; a tied matrix counts once for each of its two uses."""
    names = {f"blk.{layer}." for layer in range(config.first, config.end)}
    total = sum(t.nbytes for t in gguf.tensors.values() if t.name[: t.name.find(".", 4) + 1] in names)
    if config.embed:
        total += gguf.tensors[EMBEDDINGS].nbytes
    if config.head:
        total += gguf.tensors[OUTPUT_NORM].nbytes + gguf.tensors.get(OUTPUT, gguf.tensors[EMBEDDINGS]).nbytes
    return total


def stage_size(config: EngineConfig, gpu_layers: int) -> ContextSize:
    """The context that both a stage and the whole model get, so that their batches split alike."""
    return ContextSize(
        positions=config.context,
        sequences=config.parallel,
        batch=config.chunk,
        threads=config.threads or usable_cores(),
        gpu_layers=gpu_layers,
    )


def offload(wanted: int) -> tuple[Backend, int]:
    """The backend that layers are offloaded to, and how many; the CPU and 0 where the build or machine has none."""
    llama = binding.load()
    if wanted == 0 or not llama.lib.llama_supports_gpu_offload():
        return Backend.CPU, 0
    for index in range(llama.lib.ggml_backend_dev_count()):
        device = llama.lib.ggml_backend_dev_get(index)
        if llama.lib.ggml_backend_dev_type(device) in _ACCELERATORS:
            name = llama.ffi.string(llama.lib.ggml_backend_dev_name(device)).decode()
            known = [backend for prefix, backend in _DEVICE_BACKENDS.items() if name.startswith(prefix)]
            return (known[0] if known else Backend.OTHER), wanted
    return Backend.CPU, 0
