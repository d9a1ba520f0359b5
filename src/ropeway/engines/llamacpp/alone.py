"""When the bits of a row do not depend on the rows beside it. Measured on the builds that binding.py knows, on the CPU;
tests/engines/test_alone.py holds the library to it.

- A product with f32, f16 or bf16 matrices has other bits for one row than for two; with K-quants and IQ4_XS from 4 or
  8 rows on. The types in `ROW_BY_ROW` are multiplied row by row whatever the batch.
- Attention of a lone row over more than 256 positions is split among the threads, where there are several.
- Attention of 64 rows of a stream or more is computed by tiles, with other bits than that of 63.
"""

from __future__ import annotations

from typing import Final

from ropeway.checkpoints.families import EMBEDDINGS, OUTPUT
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile

ROW_BY_ROW: Final = frozenset(
    {GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q5_0, GgmlType.Q5_1, GgmlType.Q8_0, GgmlType.IQ4_NL}
)
UNSPLIT_POSITIONS: Final = 256
UNTILED_ROWS: Final = 63


def rows_stand_alone(gguf: GgufFile, threads: int, context: int) -> bool:
    """Whether up to `UNTILED_ROWS` rows of a stream, run together on the CPU, have the bits that each has alone.

    Matrices alone count: vectors (norms, biases) are applied value by value, and embeddings are looked up.
    """
    looked_up = {EMBEDDINGS} if OUTPUT in gguf.tensors else set()
    matrices = [t for t in gguf.tensors.values() if len(t.shape) > 1 and t.name not in looked_up]
    return (threads == 1 or context <= UNSPLIT_POSITIONS) and all(t.type in ROW_BY_ROW for t in matrices)
