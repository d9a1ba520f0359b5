"""Weights by the names that transformers' modules have for them, wherever they lie, read as they are asked for.

Names are those inside the text model: `layers.3.mlp.up_proj.weight`, `embed_tokens.weight`, `norm.weight`, and
`lm_head.weight`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ropeway.checkpoints.checkpoint import Format, format_of
from ropeway.engines.torch.four_bit import FourBit

HEAD = "lm_head.weight"
EMBEDDINGS = "embed_tokens.weight"
OUTSIDE = "mtp."
"""Where a model's next-token head lies, outside the text model (mtp.py)."""


class Source(Protocol):
    """A checkpoint's weights."""

    @property
    def config(self) -> Any:
        """The configuration of the text model, as transformers has it."""
        ...

    @property
    def tied(self) -> bool:
        """The output matrix is the embedding matrix."""
        ...

    def tensor(self, name: str, shape: torch.Size) -> Tensor:
        """A weight, of that shape. Raises CheckpointError, with its name, where it is missing or of another shape."""
        ...

    def has(self, name: str) -> bool:
        """There is such a weight."""
        ...

    def in_four_bits(self, name: str) -> bool:
        """There is such a matrix, and it lies in 4 bits."""
        ...

    def four_bit(self, name: str) -> FourBit:
        """A matrix that lies in 4 bits, so that it need not be made larger."""
        ...

    def shards(self, name: str) -> list[Tensor]:
        """The pieces, row after row, that a large table lies in; empty where it lies in one piece."""
        ...

    def bytes_under(self, prefix: str) -> int:
        """Bytes in the checkpoint of the weights whose names begin so: `layers.3.`, `norm.`, `embed_tokens.`."""
        ...


def open_source(path: Path) -> Source:
    """The weights of the checkpoint at `path`. Raises CheckpointError."""
    if format_of(path) is Format.SAFETENSORS:
        from ropeway.engines.torch.directory_source import DirectorySource

        return DirectorySource(path)
    from ropeway.engines.torch.gguf_source import GgufSource

    return GgufSource(path)
