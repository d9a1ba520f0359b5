"""Cutting the rows of a lone stream's verify round into parts, so that the stages work on them side by side.

Pure: the standard library alone. A lone stream leaves all stages but one idle; n parts over s stages take n + s - 1
times what the longest part takes one stage.
"""

from __future__ import annotations

from typing import Final

from ropeway.serving.drafting.cost import CostLine

MOST_A_STAGE: Final = 2
"""Parts a stage at most. They bring most of what can be had; and the first rows of a part cost more than the line says,
since matrices are then read for few."""


def best_cut(rows: int, stages: int, stage: CostLine) -> tuple[int, ...]:
    """Sizes of the parts, as equal as can be, that get `rows` rows through soonest; the fewest among equals.

    `stage` is what a part costs a stage by its rows.
    """
    if stages == 1 or not stage.known:
        return (rows,)
    most = min(rows, MOST_A_STAGE * stages)
    parts = min(range(1, most + 1), key=lambda count: (count + stages - 1) * stage.at(-(-rows // count)))
    size, larger = divmod(rows, parts)
    return (size + 1,) * larger + (size,) * (parts - larger)
