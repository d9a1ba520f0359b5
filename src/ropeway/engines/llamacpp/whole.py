"""The whole model in one process: the original GGUF in one context, fed token ids. What a split must equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.engines.base import EngineConfig, Logits, Span
from ropeway.engines.llamacpp.context import Context
from ropeway.engines.llamacpp.engine import offload, stage_size
from ropeway.engines.llamacpp.pieces import cut_batch


class WholeModel:
    """The unmodified file, run as any user of llama.cpp would, with the context of `config`."""

    def __init__(self, config: EngineConfig) -> None:
        gguf = GgufFile.open(config.model)
        self._context = Context(gguf.path, stage_size(config, offload(config.gpu_layers)[1]))

    def forward(self, spans: Sequence[Span], tokens: Sequence[int], wanted: Sequence[int]) -> Logits:
        """Run a batch of token ids; logits of the rows `wanted`, [len(wanted), vocabulary]. Raises EngineError."""
        pieces = cut_batch(spans, wanted)
        if len(pieces) == 1 and pieces[0].whole:
            self._context.decode_tokens(pieces[0], tokens)
            return self._context.read_logits(len(wanted))
        logits = np.empty((len(wanted), self._context.vocabulary), np.float32)
        for piece in pieces:
            self._context.decode_tokens(piece, [tokens[row] for row in piece.rows])
            if piece.places:
                logits[list(piece.places)] = self._context.read_logits(len(piece.places))
        return logits

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on."""
        self._context.keep(slot, length)

    def release(self, slot: int) -> None:
        """Forget all of the slot."""
        self._context.release(slot)

    def close(self) -> None:
        """Free the model."""
        self._context.close()
