"""A model's own head for the token after the next (MTP): one more decoder layer over the last layer's rows.

Qwen3-Next's and Qwen3.5's: two norms, a projection of [embedding of token i + 1, row i] to the width, a layer with full
attention, a norm; embeddings and output matrix are the model's. Row i is taken behind the final norm, and stands at
position i + 1 (transformers' modeling_layers.MtpModel; the checkpoint's names are `mtp.*`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import EngineError, Span
from ropeway.engines.torch.batch import make_batch
from ropeway.engines.torch.caches import BatchCache
from ropeway.engines.torch.model import StageModel
from ropeway.engines.torch.slot import Slot

PREFIX: Final = "mtp."
FAMILIES: Final = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")


class MtpHead:
    """The head of the model whose embeddings and output matrix `model` holds; `parallel` streams at once.

    `read` makes rows [1, n, width] of those that crossed a boundary.
    Raises EngineError for a family without one, CheckpointError where its weights are missing.
    """

    def __init__(
        self, model: StageModel, read: Callable[[memoryview, int], Tensor], *, context: int, parallel: int
    ) -> None:
        kind = str(model.config.model_type)
        if kind not in FAMILIES:
            raise EngineError(f"draft: models of the family {kind} have no next-token head that is known here")
        if not model.source.has(f"{PREFIX}fc.weight"):
            raise CheckpointError(
                f"draft: the checkpoint has no next-token head (there is no tensor {PREFIX}fc.weight)"
            )
        self._model = model
        self._read = read
        self._context = context
        config = copy.copy(model.config)
        config.layer_types, config.num_hidden_layers = ["full_attention"], 1
        family, width = model.family, model.width
        self._layer = model.outside_layer(config, f"{PREFIX}layers.0.")
        self._of_token = model.filled(lambda: family.final(config), f"{PREFIX}pre_fc_norm_embedding.")
        self._of_row = model.filled(lambda: family.final(config), f"{PREFIX}pre_fc_norm_hidden.")
        self._project = model.filled(lambda: nn.Linear(2 * width, width, bias=False), f"{PREFIX}fc.")
        self._norm = model.filled(lambda: family.final(config), f"{PREFIX}norm.")
        self._slots = [Slot(context) for _ in range(parallel)]
        self._true: dict[int, Tensor] = {}
        self._last: dict[int, Tensor] = {}
        """By slot, what came out for its last row: of those taken in, and with its own behind them."""

    def take(self, slot: int, rows: bytes, tokens: list[int]) -> tuple[int, float]:
        """Take in rows of the last layer, as they cross a boundary, with the tokens that follow each.

        The likeliest token behind the last of them, and its probability.
        """
        with torch.inference_mode():
            given = self._model.normed(self._read(memoryview(rows), len(tokens)))
            self._true[slot] = self._last[slot] = self._run(slot, given, tokens)[:, -1:]
            return self._likeliest(slot)

    def go_on(self, slot: int, token: int) -> tuple[int, float]:
        """The same for its own last row, with a token that was guessed; `keep` goes back to the last `take`."""
        with torch.inference_mode():
            self._last[slot] = self._run(slot, self._last[slot], [token])
            return self._likeliest(slot)

    def keep(self, slot: int, length: int) -> None:
        """Forget a slot's rows from `length` on, those that are its own."""
        self._slots[slot].keep(length)
        self._last[slot] = self._true[slot]

    def release(self, slot: int) -> None:
        """Forget all of a slot."""
        self._slots[slot] = Slot(self._context)
        self._true.pop(slot, None)
        self._last.pop(slot, None)

    def close(self) -> None:
        """Let go of the states; the weights go with the engine."""
        self._slots = []

    def _run(self, slot: int, rows: Tensor, tokens: Sequence[int]) -> Tensor:
        """The layer over rows [1, n, width] and the tokens that follow them: [1, n, width]."""
        state = self._slots[slot]
        batch = make_batch([Span(slot, state.position, len(tokens))], self._slots, (), rows.device, recurrent=False)
        batch.positions = batch.positions + 1
        inside = self._project(torch.cat([self._of_token(self._model.embed(tokens)), self._of_row(rows)], dim=-1))
        output = self._layer(
            inside,
            position_embeddings=self._model.turned(inside, batch.positions, "full_attention"),
            attention_mask=None,
            position_ids=batch.positions,
            cache=BatchCache(batch),
            batch=batch,
        )
        state.end(state.position + len(tokens))
        normed: Tensor = self._norm(output)
        return normed

    def _likeliest(self, slot: int) -> tuple[int, float]:
        shares = self._model.project(self._last[slot]).softmax(dim=-1)[0]
        token = int(shares.argmax())
        return token, float(shares[token])
