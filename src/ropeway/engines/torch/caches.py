"""What transformers' modules take for their cache: ours, by stream. Only what the modules of our families call.

`BatchCache` is handed the keys and values of all streams' rows at once; the attention that follows keeps each with its
stream (attention.py). `StreamCache` is one stream's, for the modules that see one stream at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropeway.engines.torch.batch import Batch, Stretch
from ropeway.engines.torch.recorded import Apart
from ropeway.engines.torch.slot import KeyValues, Recurrent, copied


class BatchCache:
    """Keys and values of the rows of a batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def update(self, keys: Tensor, values: Tensor, _layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        """The rows' keys and values as they are, for attention."""
        return keys, values


class StreamCache:
    """One stream's states while one stretch of its rows runs."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch

    def update(self, keys: Tensor, values: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        """Keep keys and values; gives all that the stream has."""
        kept = self._kept(layer)
        kept.keys.append(keys, self._stretch.slot.context)
        kept.values.append(values, self._stretch.slot.context)
        return kept.keys.read(), kept.values.read()

    def update_indexer(self, keys: Tensor, layer: int) -> Tensor:
        """Keep an indexer's keys, [1, rows, width]; gives all that the stream has."""
        kept = self._kept(layer)
        kept.index.append(keys, self._stretch.slot.context)
        return kept.index.read()

    def get_conv_state(self, layer: int, state_idx: int = 0) -> Tensor | None:
        """The last inputs of a convolution; the module may write to them."""
        state = self._state(layer)
        held = state.conv.get(state_idx)
        if held is not None:
            held = state.conv[state_idx] = copied(held)
        return held

    def update_conv_state(
        self, inputs: Tensor, layer: int, state_idx: int = 0, conv_kernel_size: int | None = None
    ) -> Tensor:
        """Keep the last `conv_kernel_size` inputs, [1, channels, rows]; gives them with those before."""
        state = self._state(layer)
        held = state.conv.get(state_idx)
        size = inputs.shape[-1] if conv_kernel_size is None else conv_kernel_size
        if held is not None:
            inputs = torch.cat([held, inputs], dim=-1)
        elif inputs.shape[-1] < size:
            inputs = torch.nn.functional.pad(inputs, (size - inputs.shape[-1], 0))
        state.conv[state_idx] = copied(inputs[..., -size:])
        return inputs

    def get_recurrent_state(self, layer: int, state_idx: int = 0) -> Tensor | None:
        """The matrix of each head."""
        assert state_idx == 0
        return self._state(layer).matrix

    def update_recurrent_state(self, matrix: Tensor, layer: int, state_idx: int = 0) -> Tensor:
        """Keep the matrix of each head."""
        assert state_idx == 0
        self._state(layer).matrix = matrix
        return matrix

    def is_recording_past(self, _layer: int) -> bool:
        """Rollbacks are ours (slot.py)."""
        return False

    def _kept(self, layer: int) -> KeyValues:
        return self._stretch.slot.attention.setdefault(layer, KeyValues())

    def _state(self, layer: int) -> Recurrent:
        return self._stretch.slot.states.setdefault(layer, Recurrent())


class StackedCache:
    """Several streams' recurrent states of a layer, a row of each in one call; all of them have states already."""

    def __init__(self, batch: Batch, layer: int, apart: Apart) -> None:
        self._batch = batch
        self._layer = layer
        self._apart = apart
        self._conv: Tensor | None = None

    def get_conv_state(self, _layer: int, state_idx: int = 0) -> Tensor:
        """The last inputs of the convolution, [streams, channels, inputs]; the module writes to them."""
        assert state_idx == 0
        self._conv = self._apart(
            lambda batch: torch.cat([state.conv[state_idx] for state in self._states(batch)]), self._batch
        )
        return self._conv

    def get_recurrent_state(self, _layer: int, state_idx: int = 0) -> Tensor:
        """The matrices of each head, [streams, heads, ...]."""
        assert state_idx == 0
        return self._apart(
            lambda batch: torch.cat([state.matrix for state in self._states(batch) if state.matrix is not None]),
            self._batch,
        )

    def update_recurrent_state(self, matrix: Tensor, _layer: int, state_idx: int = 0) -> Tensor:
        """Keep what each stream has now."""
        assert state_idx == 0
        assert self._conv is not None
        self._apart.run(self._keep, self._batch, matrix, self._conv)
        return matrix

    def _keep(self, batch: Batch, matrix: Tensor, conv: Tensor) -> None:
        for index, state in enumerate(self._states(batch)):
            state.matrix = matrix[index : index + 1]
            state.conv[0] = conv[index : index + 1]

    def _states(self, batch: Batch) -> list[Recurrent]:
        return [stretch.slot.states[self._layer] for stretch in batch.calls]

    def is_recording_past(self, _layer: int) -> bool:
        """Rollbacks are ours (slot.py)."""
        return False
