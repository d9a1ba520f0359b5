"""A model's own head for the token after the next (MTP): one more decoder layer over the last layer's rows.

Row i goes in with the embedding of token i + 1. Two forms are known (`Neck`): Qwen3-Next's and Qwen3.5's, and
Flash-Next's. The layer has full attention; embeddings and output matrix are the model's; the checkpoint's names are
`mtp.*`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import EngineError, Span
from ropeway.engines.torch.batch import make_batch
from ropeway.engines.torch.caches import BatchCache
from ropeway.engines.torch.model import StageModel
from ropeway.engines.torch.slot import Slot

PREFIX: Final = "mtp."


class Neck(Protocol):
    """What stands before and behind the layer."""

    offset: int
    """How far behind its row's position a row stands in the layer."""

    def given(self, rows: Tensor) -> Tensor:
        """What of the model's last rows, [1, n, planes * width], is taken in."""
        ...

    def joined(self, embedded: Tensor, rows: Tensor) -> Tensor:
        """The layer's input for embeddings [1, n, width] and rows, `given` or left over by itself."""
        ...

    def left(self, output: Tensor) -> Tensor:
        """What the layer's output leaves for a guess behind it."""
        ...

    def read(self, left: Tensor) -> Tensor:
        """That, [1, n, width], for the output matrix."""
        ...


class OneNeck:
    """Qwen3-Next's and Qwen3.5's: rows behind the final norm, two norms, a projection of both to the width, a norm.

    As transformers' modeling_layers.MtpModel.
    """

    offset = 1

    def __init__(self, model: StageModel) -> None:
        family, config, width = model.family, model.config, model.width
        self._model = model
        self._of_token = model.filled(lambda: family.final(config), f"{PREFIX}pre_fc_norm_embedding.")
        self._of_row = model.filled(lambda: family.final(config), f"{PREFIX}pre_fc_norm_hidden.")
        self._project = model.filled(lambda: nn.Linear(2 * width, width, bias=False), f"{PREFIX}fc.")
        self._norm = model.filled(lambda: family.final(config), f"{PREFIX}norm.")

    def given(self, rows: Tensor) -> Tensor:
        """As `Neck`."""
        return self._model.normed(rows)

    def joined(self, embedded: Tensor, rows: Tensor) -> Tensor:
        """As `Neck`."""
        both = torch.cat([self._of_token(embedded), self._of_row(rows)], dim=-1)
        projected: Tensor = self._project(both)
        return projected

    def left(self, output: Tensor) -> Tensor:
        """As `Neck`."""
        normed: Tensor = self._norm(output)
        return normed

    def read(self, left: Tensor) -> Tensor:
        """As `Neck`."""
        return left


class StreamsNeck:
    """Flash-Next's, over its residual streams as they leave the last layer: a norm over all of them together, one
    projection for each stream, the projected embedding added to every one; a mixer of its own behind the layer.

    As vLLM's models/qwen4_exp (Qwen4ExpMultiTokenPredictor); transformers leaves these weights out.
    """

    offset = 0

    def __init__(self, model: StageModel) -> None:
        from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextRMSNorm

        config, width, planes = model.config, model.width, model.planes
        eps = config.rms_norm_eps
        self._planes = planes
        self._of_token = model.filled(lambda: Qwen4ExpTextRMSNorm(width, eps=eps), f"{PREFIX}pre_fc_norm_embedding.")
        self._of_row = model.filled(
            lambda: Qwen4ExpTextRMSNorm(planes * width, eps=eps), f"{PREFIX}pre_fc_norm_hidden."
        )
        self._token = model.filled(lambda: nn.Linear(width, width, bias=False), f"{PREFIX}fc_embedding.")
        self._row = model.filled(lambda: nn.Linear(width, width, bias=False), f"{PREFIX}fc_hidden.")
        self._mixer = model.filled(lambda: model.family.final(config), f"{PREFIX}{model.family.final_name}.")

    def given(self, rows: Tensor) -> Tensor:
        """As `Neck`."""
        return rows

    def joined(self, embedded: Tensor, rows: Tensor) -> Tensor:
        """As `Neck`."""
        token = self._token(self._of_token(embedded))
        streams: Tensor = self._row(self._of_row(rows).unflatten(-1, (self._planes, -1)))
        return (token.unsqueeze(-2) + streams).flatten(-2)

    def left(self, output: Tensor) -> Tensor:
        """As `Neck`."""
        return output

    def read(self, left: Tensor) -> Tensor:
        """As `Neck`."""
        mixed: Tensor = self._mixer(left)
        return mixed


_NECKS: Final[dict[str, tuple[type[OneNeck] | type[StreamsNeck], str]]] = {
    "qwen3_next": (OneNeck, "fc"),
    "qwen3_5_text": (OneNeck, "fc"),
    "qwen3_5_moe_text": (OneNeck, "fc"),
    "qwen4_exp_text": (StreamsNeck, "fc_hidden"),
}
"""By model type: the neck, and the matrix that a checkpoint with such a head has."""


class MtpHead:
    """The head of the model whose embeddings and output matrix `model` holds; `parallel` streams at once.

    Rows come in `dtype`. Raises EngineError for a family without one, CheckpointError where its weights are missing.
    """

    def __init__(self, model: StageModel, dtype: torch.dtype, *, context: int, parallel: int) -> None:
        kind = str(model.config.model_type)
        if kind not in _NECKS:
            raise EngineError(f"draft: models of the family {kind} have no next-token head that is known here")
        neck, matrix = _NECKS[kind]
        if not model.source.has(f"{PREFIX}{matrix}.weight"):
            raise CheckpointError(
                f"draft: the checkpoint has no next-token head (there is no tensor {PREFIX}{matrix}.weight)"
            )
        self._model, self._dtype, self._context = model, dtype, context
        config = copy.copy(model.config)
        config.layer_types, config.num_hidden_layers = ["full_attention"], 1
        if hasattr(config, "ple_layer_ids"):
            config.ple_layer_ids = []
        self._layer = model.outside_layer(config, f"{PREFIX}layers.0.")
        self._neck: Neck = neck(model)
        self._slots = [Slot(context) for _ in range(parallel)]
        self._true: dict[int, Tensor] = {}
        self._last: dict[int, Tensor] = {}
        """By slot, what came out for its last row: of those taken in, and with its own behind them."""

    def take(self, slot: int, rows: bytes, tokens: list[int]) -> tuple[int, float]:
        """Take in rows of the last layer with the tokens that follow each: the likeliest token behind the last of
        them, and its probability."""
        with torch.inference_mode():
            came = torch.frombuffer(bytearray(rows), dtype=self._dtype).view(1, len(tokens), -1)
            given = self._neck.given(came.to(self._model.device, self._model.dtype))
            self._true[slot] = self._last[slot] = self._run(slot, given, tokens)
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
        """The layer over rows [1, n, ...] and the tokens that follow them; what it leaves of the last, [1, 1, ...]."""
        state = self._slots[slot]
        batch = make_batch([Span(slot, state.position, len(tokens))], self._slots, (), rows.device, recurrent=False)
        batch.positions = batch.positions + self._neck.offset
        inside = self._neck.joined(self._model.embed(tokens)[..., : self._model.width], rows)
        output = self._layer(
            inside,
            position_embeddings=self._model.turned(inside, batch.positions, "full_attention"),
            attention_mask=None,
            position_ids=batch.positions,
            cache=BatchCache(batch),
            batch=batch,
        )
        state.end(state.position + len(tokens))
        return self._neck.left(output[:, -1:])

    def _likeliest(self, slot: int) -> tuple[int, float]:
        shares = self._model.project(self._neck.read(self._last[slot])).softmax(dim=-1)[0]
        token = int(shares.argmax())
        return token, float(shares[token])
