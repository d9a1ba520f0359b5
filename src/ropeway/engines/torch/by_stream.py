"""Parts of a layer that see one stream at a time, put in the place of the library's own modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from ropeway.engines.torch.batch import Batch, Stretch, blocks
from ropeway.engines.torch.caches import BatchCache, StackedCache, StreamCache
from ropeway.engines.torch.recorded import Apart

FullPositions = Callable[[int], tuple[Tensor, Tensor]]
"""Cosines and sines of the positions 0..n of a stream."""


class Mixer(nn.Module):
    """A gated DeltaNet. `lone`: blocks of up to so many rows run row by row, as they would one after another."""

    _NUMBERS: Final = (0,)
    """Of the states that the library's module keeps."""

    def __init__(self, inner: nn.Module, layer: int, apart: Apart, *, lone: int) -> None:
        super().__init__()
        self.inner = inner
        self._layer = layer
        self._apart = apart
        self._lone = lone

    def forward(self, hidden_states: Tensor, cache: BatchCache, batch: Batch, **_: Any) -> Tensor:
        """Rows [1, rows, width] of all streams in, the same out."""
        if batch.recorded or (len(batch.calls) > 1 and all(self._decodes(stretch) for stretch in batch.calls)):
            return self._together(hidden_states, batch)
        outputs = [self._call(hidden_states[:, call.start : call.stop], call) for call in batch.calls]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

    def _decodes(self, stretch: Stretch) -> bool:
        """One row of a stream that has a state here."""
        state = stretch.slot.states.get(self._layer)
        return stretch.rows == 1 and state is not None and state.matrix is not None

    def _together(self, hidden_states: Tensor, batch: Batch) -> Tensor:
        """A row each of several streams: one call of the library's module, a stream for each item of its batch."""

        def begin(batch: Batch, rows: Tensor) -> None:
            for one in batch.calls:
                self._begin(rows[:, one.start : one.stop], one)

        self._apart.run(begin, batch, hidden_states)
        cache = StackedCache(batch, self._layer, self._apart)
        output: Tensor = self.inner(hidden_states.transpose(0, 1), cache=cache)
        return output.transpose(0, 1)

    def _begin(self, rows: Tensor, stretch: Stretch) -> StreamCache:
        call = stretch.call
        assert call is not None
        stretch.slot.enter(call, self._layer, self._NUMBERS)
        cache = StreamCache(stretch)
        if call.replays is not None:
            call.replays.append(lambda count: _drop(self._run(rows[:, :count], cache)))
        return cache

    def _call(self, rows: Tensor, stretch: Stretch) -> Tensor:
        return self._run(rows, self._begin(rows, stretch))

    def _run(self, rows: Tensor, cache: StreamCache) -> Tensor:
        if 1 < rows.shape[1] <= self._lone:
            return torch.cat([self.inner(rows[:, i : i + 1], cache=cache) for i in range(rows.shape[1])], dim=1)
        output: Tensor = self.inner(rows, cache=cache)
        return output


class TokenReader(nn.Module):
    """A part of a layer that reads token ids beside its rows (qwen4_exp's PLE)."""

    _NUMBERS: Final = (1, 2)
    """Of the states that the library's module keeps: its convolution's, and the last ids."""

    def __init__(self, inner: nn.Module, layer: int, apart: Apart) -> None:
        super().__init__()
        self.inner = inner
        self._layer = layer
        self._apart = apart

    def forward(self, hidden_states: Tensor, input_ids: Tensor, cache: BatchCache, conv_mask: None = None) -> Tensor:
        """Rows [1, rows, planes * width] and ids [1, rows] of all streams in, rows out."""
        return self._apart(self._calls, cache.batch, hidden_states, input_ids, keeps=True)

    def _calls(self, batch: Batch, rows: Tensor, ids: Tensor) -> Tensor:
        outputs = [
            self._call(rows[:, call.start : call.stop], ids[:, call.start : call.stop], call) for call in batch.calls
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

    def _call(self, rows: Tensor, ids: Tensor, stretch: Stretch) -> Tensor:
        call = stretch.call
        assert call is not None
        stretch.slot.enter(call, self._layer, self._NUMBERS)
        cache = StreamCache(stretch)
        if call.replays is not None:
            call.replays.append(lambda count: _drop(self.inner(rows[:, :count], ids[:, :count], cache)))
        output: Tensor = self.inner(rows, ids, cache)
        return output


class IndexedAttention(nn.Module):
    """Attention that chooses among all positions of its stream: it wants their cosines, and a mask whatever happens."""

    def __init__(self, inner: nn.Module, positions: FullPositions, apart: Apart, *, invariant: bool) -> None:
        super().__init__()
        self.inner = inner
        self._positions = positions
        self._apart = apart
        self._invariant = invariant

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        batch: Batch,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Rows [1, rows, width] of all streams in, the same out."""
        return self._apart(self._spans, batch, hidden_states), None

    def _spans(self, batch: Batch, rows: Tensor) -> Tensor:
        outputs = []
        spans = batch.spans
        for stretch in [block for span in spans for block in blocks(span)] if self._invariant else spans:
            output, _weights = self.inner(
                rows[:, stretch.start : stretch.stop],
                self._positions(stretch.end),
                attention_mask=batch.mask(stretch, 0, None),
                cache=StreamCache(stretch),
            )
            outputs.append(output)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


def _drop(_: Tensor) -> None:
    """A rollback runs rows again for the state that they leave; their output is known."""
