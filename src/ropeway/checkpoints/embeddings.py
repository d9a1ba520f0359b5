"""Embedding rows straight from the mapped file: only the rows that are asked for are read and dequantized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.families import EMBEDDINGS, embeddings
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile

Rows = npt.NDArray[np.float32]
"""Shape [tokens, width]."""

KEPT_ROWS: Final = 4096
"""Rows of single tokens that are kept dequantized: a decode step asks for one, mostly of a common token."""


class EmbeddingTable:
    """Token ids to f32 rows, with the bits that ggml's own `get_rows` gives on x86.

    `nbytes` is the size of the matrix in the file. Raises CheckpointError when there is no such matrix or its type
    cannot be dequantized.
    """

    def __init__(self, gguf: GgufFile) -> None:
        info = embeddings(gguf)
        self.width, self.vocabulary = info.shape
        self.nbytes = info.nbytes
        self._raw = np.frombuffer(gguf.tensor_bytes(EMBEDDINGS), np.uint8).reshape(self.vocabulary, -1)
        self._dequantize = _dequantizer(info.type, str(gguf.path))
        self._kept: dict[int, Rows] = {}

    def rows(self, tokens: Sequence[int]) -> Rows:
        """The rows of `tokens`, not to be written to. Raises ValueError for an id outside the vocabulary."""
        if len(tokens) == 1:
            kept = self._kept.get(tokens[0])
            if kept is None:
                if len(self._kept) >= KEPT_ROWS:
                    self._kept.clear()
                kept = self._kept[tokens[0]] = self._read(tokens)
            return kept
        return self._read(tokens)

    def _read(self, tokens: Sequence[int]) -> Rows:
        ids = np.asarray(tokens, np.int64)
        if not ids.size:
            return np.empty((0, self.width), np.float32)
        if not 0 <= ids.min() <= ids.max() < self.vocabulary:
            raise ValueError(f"tokens: an id is outside the vocabulary of {self.vocabulary}")
        return self._dequantize(self._raw[ids])


def _dequantizer(kind: GgmlType, path: str) -> Callable[[npt.NDArray[np.uint8]], Rows]:
    if kind is GgmlType.F32:
        return lambda raw: raw.view("<f4")
    if kind is GgmlType.F16:
        return lambda raw: raw.view("<f2").astype(np.float32)
    if kind is GgmlType.BF16:
        return lambda raw: (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    def quantized(raw: npt.NDArray[np.uint8]) -> Rows:
        rows: Rows = dequantize(raw, number)
        return rows

    number = GGMLQuantizationType(kind)
    try:
        quantized(np.zeros((1, kind.block_bytes), np.uint8))
    except NotImplementedError:
        raise CheckpointError(f"{path}: embeddings of type {kind.name} cannot be read") from None
    return quantized
