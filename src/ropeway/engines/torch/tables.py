"""A large embedding table that lies in pieces: only the rows that are looked up are read from the mapped file."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropeway.checkpoints.errors import CheckpointError


class ShardedTable(nn.Module):
    """Pieces [rows, width] that follow one another, in the place of one `nn.Embedding` of `shape`; gives `dtype`."""

    def __init__(self, shards: list[Tensor], shape: torch.Size, dtype: torch.dtype) -> None:
        super().__init__()
        rows = sum(shard.shape[0] for shard in shards)
        if rows != shape[0] or any(shard.shape[1:] != shape[1:] for shard in shards):
            raise CheckpointError(f"an embedding table in {len(shards)} pieces has not the shape {list(shape)}")
        self._shards = shards
        self._dtype = dtype
        self._edges = torch.tensor([shard.shape[0] for shard in shards]).cumsum(0)

    @property
    def weight(self) -> Tensor:
        """Where the table lies, for whoever asks for its device."""
        return self._shards[0]

    def forward(self, ids: Tensor) -> Tensor:
        """Ids [...] to rows [..., width]."""
        flat = ids.reshape(-1)
        found = self._shards[0].new_empty((flat.shape[0], self._shards[0].shape[1]))
        piece = torch.searchsorted(self._edges, flat, right=True)
        for index in piece.unique().tolist():
            here = piece == index
            start = int(self._edges[index - 1]) if index else 0
            found[here] = functional.embedding(flat[here] - start, self._shards[index])
        return found.view(*ids.shape, -1).to(self._dtype)
