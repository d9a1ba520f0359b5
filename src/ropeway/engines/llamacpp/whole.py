"""The whole model in one process: the original GGUF in one context, fed token ids. What a split must equal."""

from __future__ import annotations

from collections.abc import Sequence

from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.engines.base import EngineConfig, Logits, Span
from ropeway.engines.llamacpp.context import Context
from ropeway.engines.llamacpp.engine import LAYER_INPUT_ARCHITECTURES, stage_size


class WholeModel:
    """The unmodified file, run as any user of llama.cpp would, with the context of `config`."""

    def __init__(self, config: EngineConfig) -> None:
        gguf = GgufFile.open(config.model)
        unified = gguf.architecture not in LAYER_INPUT_ARCHITECTURES
        self._context = Context(gguf.path, stage_size(config, unified=unified, gpu_layers=config.gpu_layers))

    def forward(self, spans: Sequence[Span], tokens: Sequence[int], wanted: Sequence[int]) -> Logits:
        """Run a batch of token ids; logits of the rows `wanted`, [len(wanted), vocabulary]. Raises EngineError."""
        self._context.decode_tokens(spans, tokens, wanted)
        return self._context.read_logits(len(wanted))

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on."""
        self._context.keep(slot, length)

    def release(self, slot: int) -> None:
        """Forget all of the slot."""
        self._context.release(slot)

    def close(self) -> None:
        """Free the model."""
        self._context.close()
