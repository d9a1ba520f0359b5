"""Attention of a batch: stream by stream over its own keys and values, each by the call that transformers would make.

So the bits of a stream that runs alone are those of transformers with the same rows a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ropeway.engines.torch.batch import Batch, Stretch, blocks
from ropeway.engines.torch.family import window
from ropeway.engines.torch.recorded import Apart
from ropeway.engines.torch.slot import KeyValues

Core = Callable[..., tuple[Tensor, Tensor | None]]


class Attention:
    """The attention function of one model, registered with transformers under `name`."""

    def __init__(self, name: str, config: Any, eager: Core | None, apart: Apart, *, invariant: bool) -> None:
        self._config = config
        self._apart = apart
        self._eager = eager
        self._invariant = invariant
        AttentionInterface.register(name, self)

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        batch: Batch | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Rows [1, heads, rows, width] in, [1, rows, heads, width] out. Keys and values are kept with their streams."""
        if batch is None:
            return self._core(module, query, key, value, attention_mask, kwargs), None
        layer = int(module.layer_idx)
        reach = window(self._config, layer)

        def attend(batch: Batch, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            outputs = []
            for stretch in batch.spans:
                kept = stretch.slot.attention.setdefault(layer, KeyValues())
                kept.keys.append(key[:, :, stretch.start : stretch.stop], stretch.slot.context)
                kept.values.append(value[:, :, stretch.start : stretch.stop], stretch.slot.context)
                outputs.append(self._span(module, query, stretch, kept, reach, batch, kwargs))
            return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

        return self._apart(attend, batch, query, key, value), None

    def _span(
        self,
        module: nn.Module,
        query: Tensor,
        stretch: Stretch,
        kept: KeyValues,
        reach: int | None,
        batch: Batch,
        kwargs: dict[str, Any],
    ) -> Tensor:
        """One stream's rows; in invariant mode by blocks that do not depend on what came with them."""
        parts = blocks(stretch) if self._invariant else [stretch]
        outputs = [self._block(module, query, block, kept, reach, batch, kwargs) for block in parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

    def _block(
        self,
        module: nn.Module,
        query: Tensor,
        block: Stretch,
        kept: KeyValues,
        reach: int | None,
        batch: Batch,
        kwargs: dict[str, Any],
    ) -> Tensor:
        begin = 0 if reach is None else max(0, block.first - reach + 1)
        keys, values = kept.keys.read(begin, block.end), kept.values.read(begin, block.end)
        mask = batch.mask(block, begin, reach) if self._needs_mask(block, reach, keys.shape[-2]) else None
        return self._core(module, query[:, :, block.start : block.stop], keys, values, mask, kwargs)

    def _needs_mask(self, stretch: Stretch, reach: int | None, columns: int) -> bool:
        """As transformers' `_ignore_causal_mask_sdpa`, the other way round: bits depend on whether there is a mask."""
        if self._eager is not None:
            return True
        if reach is not None and columns >= reach and (stretch.rows > 1 or not self._invariant):
            return True
        return stretch.rows > 1 and stretch.first > 0

    def _core(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
    ) -> Tensor:
        if self._eager is None:
            output, _ = sdpa_attention_forward(module, query, key, value, mask, **kwargs)
            return output
        if mask is not None:
            mask = torch.where(mask, query.new_zeros(()), torch.finfo(query.dtype).min)
        output, _ = self._eager(module, query, key, value, mask, **kwargs)
        return output
