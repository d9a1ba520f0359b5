"""A reusable `llama_batch`: arrays made once, filled a decode, with rows or token ids lent for the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ropeway.engines.base import Span
from ropeway.engines.llamacpp.binding import LlamaCpp


class Batch:
    """Room for `capacity` rows, each belonging to one sequence."""

    def __init__(self, llama: LlamaCpp, capacity: int) -> None:
        ffi = llama.ffi
        self._ffi = ffi
        self.capacity = capacity
        self._pos = np.zeros(capacity, np.int32)
        self._seq = np.zeros(capacity, np.int32)
        self._seq_count = np.ones(capacity, np.int32)
        self._output = np.zeros(capacity, np.int8)
        self._tokens = np.zeros(capacity, np.int32)
        base = ffi.cast("llama_seq_id *", self._seq.ctypes.data)
        self._seq_pointers = ffi.new("llama_seq_id *[]", [base + i for i in range(capacity)])
        self._token_pointer = ffi.cast("llama_token *", self._tokens.ctypes.data)
        batch = ffi.new("llama_batch *")
        batch.pos = ffi.cast("llama_pos *", self._pos.ctypes.data)
        batch.n_seq_id = ffi.cast("int32_t *", self._seq_count.ctypes.data)
        batch.seq_id = self._seq_pointers
        batch.logits = ffi.cast("int8_t *", self._output.ctypes.data)
        self.struct = batch

    def place(self, spans: Sequence[Span], outputs: Sequence[int] | None) -> int:
        """Fill positions and sequences from `spans`; flag the rows `outputs` (None: every row). Gives the row count."""
        at = 0
        for span in spans:
            stop = at + span.rows
            if span.rows == 1:
                self._pos[at] = span.first
                self._seq[at] = span.slot
            else:
                self._pos[at:stop] = np.arange(span.first, span.first + span.rows, dtype=np.int32)
                self._seq[at:stop] = span.slot
            at = stop
        if outputs is None:
            self._output[:at] = 1
        else:
            self._output[:at] = 0
            for row in outputs:
                self._output[row] = 1
        self.struct.n_tokens = at
        return at

    def use_rows(self, rows: memoryview) -> Any:
        """Point the batch at f32 rows; the result must live until the decode has returned."""
        held = self._ffi.from_buffer("float[]", rows)
        self.struct.embd = held
        self.struct.token = self._ffi.NULL
        return held

    def use_tokens(self, tokens: Sequence[int]) -> None:
        """Copy token ids in, for a model that embeds them itself."""
        self._tokens[: len(tokens)] = tokens
        self.struct.token = self._token_pointer
        self.struct.embd = self._ffi.NULL
