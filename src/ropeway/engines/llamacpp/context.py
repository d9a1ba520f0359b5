"""One model file loaded with one context: decode, read outputs, and the state operations of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ropeway.checkpoints.budget import Lease
from ropeway.checkpoints.origin import refuse_partial
from ropeway.engines.base import EngineError, Logits
from ropeway.engines.llamacpp import binding
from ropeway.engines.llamacpp.batch import Batch
from ropeway.engines.llamacpp.pieces import Piece


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What a context must hold: `positions` a sequence, `sequences`, and at most `batch` rows a decode."""

    positions: int
    sequences: int
    batch: int
    threads: int
    gpu_layers: int = 0


class Context:
    """A loaded GGUF and its KV memory. One thread calls it."""

    def __init__(self, path: Path, size: ContextSize, eval_callback: Any = None) -> None:
        llama = binding.load()
        self._llama, self._ffi, self._lib = llama, llama.ffi, llama.lib
        refuse_partial(path)
        self._model = load_model(path, gpu_layers=size.gpu_layers)
        self._lease = Lease(path)
        params = self._lib.llama_context_default_params()
        params.n_ctx = size.positions * size.sequences
        params.n_seq_max = size.sequences
        params.n_batch = params.n_ubatch = size.batch
        params.n_threads = params.n_threads_batch = size.threads
        if eval_callback is not None:
            params.cb_eval = eval_callback
        self._context = self._lib.llama_init_from_model(self._model, params)
        if self._context == self._ffi.NULL:
            self._lib.llama_model_free(self._model)
            raise EngineError(
                f"{path.name}: no memory for {size.sequences} streams of {size.positions} positions: "
                f"{llama.take_error()}; lower --context or --parallel"
            )
        self._memory = self._lib.llama_get_memory(self._context)
        self.vocabulary = int(self._lib.llama_vocab_n_tokens(self._lib.llama_model_get_vocab(self._model)))
        self.hidden = int(self._lib.llama_model_n_embd(self._model))
        self._batch = Batch(llama, size.batch)
        self._layer_input = getattr(self._lib, binding.LAYER_INPUT_GETTER)

    def want_layer_input(self, layer: int) -> None:
        """Have every decode keep the input rows of `layer`."""
        getattr(self._lib, binding.LAYER_INPUT_SETTER)(self._context, layer, True)

    def decode_rows(self, piece: Piece, rows: memoryview) -> None:
        """Run one piece of a batch on hidden rows, which lie in its own order. Raises EngineError."""
        self._batch.place(piece.spans, piece.wanted)
        held = self._batch.use_rows(rows)
        self._decode()
        del held

    def decode_tokens(self, piece: Piece, tokens: Sequence[int]) -> None:
        """Run one piece of a batch on token ids, which the model embeds itself. Raises EngineError."""
        self._batch.place(piece.spans, piece.wanted)
        self._batch.use_tokens(tokens)
        self._decode()

    def _decode(self) -> None:
        status = self._lib.llama_decode(self._context, self._batch.struct[0])
        if status == 1:
            raise EngineError("llama.cpp has no free KV cells left for this batch")
        if status != 0:
            raise EngineError(f"llama.cpp could not decode (status {status}): {self._llama.take_error()}")

    def read_layer_input(self, layer: int, count: int, out: memoryview) -> None:
        """Copy the last decode's input rows of `layer` into `out`: count x hidden f32."""
        pointer = self._layer_input(self._context, layer)
        if pointer == self._ffi.NULL:
            raise EngineError(f"llama.cpp gave no rows for the input of layer {layer}")
        self._ffi.memmove(out, pointer, count * self.hidden * 4)

    def read_logits(self, count: int) -> Logits:
        """A copy of the last decode's logits, [count, vocabulary], in the order of the flagged rows."""
        logits = np.empty((count, self.vocabulary), np.float32)
        if count:
            pointer = self._lib.llama_get_logits(self._context)
            if pointer == self._ffi.NULL:
                raise EngineError("llama.cpp gave no logits")
            self._ffi.memmove(self._ffi.from_buffer(logits), pointer, logits.nbytes)
        return logits

    def keep(self, sequence: int, length: int) -> None:
        """Forget the sequence's positions from `length` on. Raises EngineError where the memory cannot."""
        if not self._lib.llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise EngineError(f"this model's state cannot be rolled back to position {length}")

    def release(self, sequence: int) -> None:
        """Forget all of the sequence; -1 forgets every sequence."""
        self._lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def save(self, sequence: int) -> bytes:
        """The sequence's state as llama.cpp writes it."""
        size = self._lib.llama_state_seq_get_size(self._context, sequence)
        state = bytearray(size)
        written = self._lib.llama_state_seq_get_data(self._context, self._ffi.from_buffer(state), size, sequence)
        if written != size:
            raise EngineError(f"llama.cpp saved {written} of {size} state bytes")
        return bytes(state)

    def restore(self, sequence: int, state: bytes) -> None:
        """Put a saved state into an empty sequence."""
        source = self._ffi.from_buffer(state)
        if self._lib.llama_state_seq_set_data(self._context, source, len(state), sequence) != len(state):
            raise EngineError("llama.cpp refused the saved state: it is from another model, context or build")

    def close(self) -> None:
        """Free the context and the model."""
        if self._context != self._ffi.NULL:
            self._lib.llama_free(self._context)
            self._lib.llama_model_free(self._model)
            self._context = self._ffi.NULL
            self._lease.close()


def load_model(path: Path, *, gpu_layers: int = 0, vocab_only: bool = False) -> Any:
    """A `llama_model *` that the caller frees. Raises EngineError with llama.cpp's own reason."""
    llama = binding.load()
    params = llama.lib.llama_model_default_params()
    params.n_gpu_layers = gpu_layers
    params.vocab_only = vocab_only
    llama.take_error()
    model = llama.lib.llama_model_load_from_file(str(path).encode(), params)
    if model == llama.ffi.NULL:
        raise EngineError(f"{path}: llama.cpp cannot load it: {llama.take_error()}")
    return model
