"""From timed batches to costs: a layer's by kind, and a stage's own. Pure: arithmetic over samples.

Stages of several ranges are timed under the same conditions. A batch's time is a stage's own part and so much for each
layer of each kind, each of them a cost of three numbers, which least squares over all of them takes apart. Of the times
of one condition on one stage the lower quartile counts there: what disturbs a machine only ever adds time, and rarely
to all alike. What a batch usually takes by that is one factor for all (`usual`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

from ropeway.placement.facts import Cost

_PARTS: Final = ((0, 1, 2), (0, 1), (0, 2), (0,))
"""Which of a cost's three numbers are told apart, where the conditions allow no more."""
STAGE: Final = ""
"""The name of a stage's own part among the kinds."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What was run: `rows` rows that attend to `depth` positions each."""

    rows: int
    depth: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Milliseconds of one batch on a stage with so many layers of each kind."""

    kinds: Mapping[str, int]
    condition: Condition
    ms: float


def spread(values: Sequence[float]) -> float:
    """Interquartile range as a share of the median; 0 of fewer than four values."""
    if len(values) < 4:
        return 0.0
    low, middle, high = quantiles(values, n=4)
    return (high - low) / middle if middle else 0.0


def undisturbed(values: Sequence[float]) -> float:
    """The lower quartile; the least of fewer than four values."""
    return min(values) if len(values) < 4 else quantiles(values, n=4)[0]


def mean_of_most(values: Sequence[float]) -> float:
    """The mean without the tenth at either end: what adds up over many batches, a hitch left aside."""
    ordered = sorted(values)
    most = ordered[len(ordered) // 10 : len(ordered) - len(ordered) // 10]
    return sum(most) / len(most)


def usual(samples: Sequence[Sample]) -> float:
    """What batches take on average by what they take undisturbed: 1 on a machine that never wavers."""
    found = [ms / undisturbed(values) for values in _by_stage(samples).values() for ms in values]
    return max(1.0, mean_of_most(found)) if found else 1.0


def widest_spread(samples: Sequence[Sample]) -> float:
    """The widest spread of any condition on any stage."""
    return max((spread(values) for values in _by_stage(samples).values()), default=0.0)


def fit_costs(samples: Sequence[Sample]) -> dict[str, Cost]:
    """Costs by kind, and under `STAGE` the stage's own.

    Raises ValueError where the stages that were timed cannot tell the kinds apart.
    """
    kinds = [STAGE, *dict.fromkeys(kind for sample in samples for kind in sample.kinds)]
    stages, values = [], []
    for (counts, at), found in _by_stage(samples).items():
        stages.append(({STAGE: 1, **dict(counts)}, (1.0, float(at.rows), at.rows * at.depth)))
        values.append(undisturbed(found))
    for used in _PARTS:
        rows = [[held.get(kind, 0) * parts[part] for kind in kinds for part in used] for held, parts in stages]
        try:
            solved = iter(not_below_zero(rows, values))
        except ValueError:
            if used is _PARTS[-1]:
                raise
            continue
        costs = {kind: {part: next(solved) for part in used} for kind in kinds}
        return {kind: Cost(*(parts.get(part, 0.0) for part in range(3))) for kind, parts in costs.items()}
    raise AssertionError("the last try returns or raises")


def through(times: Sequence[tuple[Condition, float]]) -> Cost:
    """The cost closest to the times, with no part below 0; parts that the conditions cannot tell apart are one."""
    return fit_costs([Sample({}, at, ms) for at, ms in times])[STAGE]


def not_below_zero(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Least squares of rows x unknowns = values, each relative to its value, with no unknown below 0.

    Unknowns that would be negative are set to 0, the most negative first. Raises ValueError where rows are too alike.
    """
    scaled = [[item / max(value, 1e-9) for item in row] for row, value in zip(rows, values, strict=True)]
    targets = [1.0 if value > 0 else 0.0 for value in values]
    free = [column for column in range(len(rows[0])) if any(row[column] for row in rows)]
    found = [0.0] * len(rows[0])
    while free:
        solved = _least_squares([[row[column] for column in free] for row in scaled], targets)
        if min(solved) >= 0:
            for column, value in zip(free, solved, strict=True):
                found[column] = value
            break
        free.pop(solved.index(min(solved)))
    return found


def _least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """The normal equations, by elimination with pivoting, columns scaled to 1."""
    size = len(rows[0])
    scale = [max(abs(row[column]) for row in rows) or 1.0 for column in range(size)]
    unit = [[row[column] / scale[column] for column in range(size)] for row in rows]
    matrix = [
        [sum(row[i] * row[j] for row in unit) for j in range(size)]
        + [sum(row[i] * value for row, value in zip(unit, values, strict=True))]
        for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(matrix[r][i]))
        if abs(matrix[pivot][i]) < 1e-12:
            raise ValueError("calibration: the stages that were timed cannot tell the kinds of layers apart")
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for r in range(size):
            if r != i:
                factor = matrix[r][i] / matrix[i][i]
                matrix[r] = [a - factor * b for a, b in zip(matrix[r], matrix[i], strict=True)]
    return [matrix[i][size] / matrix[i][i] / scale[i] for i in range(size)]


def _by_stage(samples: Sequence[Sample]) -> dict[tuple[tuple[tuple[str, int], ...], Condition], list[float]]:
    found: dict[tuple[tuple[tuple[str, int], ...], Condition], list[float]] = {}
    for sample in samples:
        found.setdefault((tuple(sorted(sample.kinds.items())), sample.condition), []).append(sample.ms)
    return found
