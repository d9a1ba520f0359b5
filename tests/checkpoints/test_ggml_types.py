"""The type table against the one of the package `gguf`."""

from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ropeway.checkpoints.ggml_types import GgmlType


@pytest.mark.parametrize("kind", [kind for kind in GgmlType if kind is not GgmlType.Q8_1])
def test_sizes_are_those_of_the_gguf_package(kind: GgmlType) -> None:
    assert (kind.block_values, kind.block_bytes) == GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    assert GGMLQuantizationType(kind).name == kind.name


def test_q8_1_is_two_halves_and_32_bytes() -> None:
    assert GgmlType.Q8_1.nbytes((32, 2)) == 2 * (2 + 2 + 32)


def test_a_row_that_is_not_whole_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="rows of 48 values are not whole blocks of 32"):
        GgmlType.Q4_0.nbytes((48, 2))
