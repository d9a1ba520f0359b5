"""Rows between dtypes, against values worked out by hand and against exhaustive round trips."""

from __future__ import annotations

import numpy as np
import pytest

from ropeway.engines.rows import convert_rows, from_f32, side_by_side, to_f32
from ropeway.types import RowDtype


def bits(*values: float) -> list[int]:
    return [int(value) for value in np.frombuffer(from_f32(np.array(values, np.float32), RowDtype.BF16), np.uint16)]


def test_bf16_rounds_to_the_nearest_ties_to_even() -> None:
    # bf16 has 8 bits of mantissa: 1 + 2^-7 is the next after 1, so 1 + 2^-8 is a tie, and goes to the even 1.0.
    assert bits(1.0, 1 + 2**-8, 1 + 2**-8 + 2**-20, 1 + 3 * 2**-8) == [0x3F80, 0x3F80, 0x3F81, 0x3F82]
    assert bits(-2.0, 0.0, -0.0) == [0xC000, 0, 0x8000]
    assert bits(3.4e38, np.inf, -np.inf) == [0x7F80, 0x7F80, 0xFF80]
    assert bits(np.nan) == [0x7FC0]


@pytest.mark.parametrize("dtype", [RowDtype.F16, RowDtype.BF16])
def test_every_value_survives_f32(dtype: RowDtype) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    values = to_f32(every.tobytes(), dtype)
    back = np.frombuffer(from_f32(values, dtype), np.uint16)
    finite = ~np.isnan(values)
    assert (back[finite] == every[finite]).all()
    assert np.isnan(to_f32(back.tobytes(), dtype)[~finite]).all()


def test_the_same_dtype_is_left_alone() -> None:
    rows = memoryview(bytearray(8))
    assert convert_rows(rows, RowDtype.F32, RowDtype.F32) is rows
    assert len(convert_rows(rows, RowDtype.F32, RowDtype.F16)) == 4


def test_a_row_s_planes_side_by_side() -> None:
    rows = memoryview(b"a1a2a3b1b2b3")
    assert bytes(side_by_side(rows, 3, 2)) == b"a1b1a2b2a3b3"
    assert side_by_side(rows, 6, 1) is rows
