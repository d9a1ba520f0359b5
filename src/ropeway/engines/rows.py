"""Hidden rows between dtypes, at an engine's own edge. To a wider dtype nothing changes; to a narrower one values are
rounded to the nearest, ties to even. Knows nothing of engines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ropeway.types import RowDtype


def convert_rows(rows: bytes | memoryview, given: RowDtype, wanted: RowDtype) -> bytes | memoryview:
    """The values of `rows` in another dtype; the very same object where that is the dtype given."""
    if given is wanted:
        return rows
    return from_f32(to_f32(rows, given), wanted)


def side_by_side(rows: memoryview, count: int, planes: int) -> memoryview:
    """`count` rows, plane after plane as they cross a boundary, as row after row with a row's planes side by side."""
    if planes == 1:
        return rows
    return memoryview(np.frombuffer(rows, np.uint8).reshape(planes, count, -1).transpose(1, 0, 2).tobytes())


def to_f32(rows: bytes | memoryview, given: RowDtype) -> npt.NDArray[np.float32]:
    """The values as f32, flat. f16 and bf16 values are f32 values too."""
    if given is RowDtype.BF16:
        return (np.frombuffer(rows, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(rows, "<f4" if given is RowDtype.F32 else "<f2").astype(np.float32, copy=False)


def from_f32(values: npt.NDArray[np.float32], wanted: RowDtype) -> bytes:
    """The values in `wanted`, rounded to the nearest, ties to even; NaN stays NaN."""
    if wanted is RowDtype.F32:
        return values.astype("<f4", copy=False).tobytes()
    if wanted is RowDtype.F16:
        with np.errstate(over="ignore"):
            return values.astype("<f2").tobytes()
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    rounded = np.where(np.isnan(values), np.uint32(0x7FC0), rounded)
    return rounded.astype("<u2").tobytes()
