"""The whole model in one process, for engines whose whole is a stage with every layer, the embeddings and the head."""

from __future__ import annotations

from collections.abc import Sequence

from ropeway.engines.base import Engine, Logits, ReadsTokens, Span


class EngineWhole:
    """An engine made for all layers, loaded here and fed token ids. Raises EngineError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.load()

    def forward(self, spans: Sequence[Span], tokens: Sequence[int], wanted: Sequence[int]) -> Logits:
        """Run a batch of token ids; logits of the rows `wanted`, [len(wanted), vocabulary]."""
        rows = memoryview(bytearray(len(tokens) * self._engine.boundary.row_bytes()))
        self._engine.embed(tokens, rows)
        if isinstance(self._engine, ReadsTokens):
            self._engine.take_tokens(tokens)
        return self._engine.forward_head(spans, rows, wanted)

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on."""
        self._engine.keep(slot, length)

    def release(self, slot: int) -> None:
        """Forget all of the slot."""
        self._engine.release(slot)

    def close(self) -> None:
        """Free the model."""
        self._engine.close()
