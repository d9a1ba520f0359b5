"""What the running layout was predicted to take, held against what it takes: a section of GET /v1/ring.

Written by the loop's thread; what is shown is replaced whole. Knows the prediction as a price, not where it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ropeway.placement.cost import Price, price
from ropeway.placement.drift import ENOUGH, Drift, Round, drift, measured
from ropeway.placement.tables import Problem
from ropeway.serving.underway import RoundRecord
from ropeway.types import Layout

STANDING: Final = 4
"""So many draws in a row must find the same kind of difference before it is reported."""
_DEPTH: Final = 64
"""Depths are rounded to so many positions."""


class Prediction:
    """Of one replica. Without a problem there is nothing to compare with, and only what is measured is shown."""

    def __init__(
        self,
        problem: Problem | None = None,
        predicted: Price | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._problem = problem
        self._predicted = predicted
        self._report = report
        self._prices: dict[tuple[int, int], Price] = {}
        self._strikes = 0
        self._reported = False
        self._shown: dict[str, object] = {}

    def take(self, records: Sequence[RoundRecord], layout: Layout, depth: int) -> None:
        """Look at the latest rounds, whose streams hold `depth` positions on average."""
        rounds, rows = decode_rounds(records, layout.world)
        if len(rounds) < ENOUGH or depth < 1:
            return
        predicted = self._at(rows, depth) if self._is_of(layout) else None
        stages, wire = measured(rounds)
        shown: dict[str, object] = {
            "rounds": len(rounds),
            "rows": rows,
            "depth": depth,
            "measured_ms": round(sum(stages) + (wire or 0.0), 3),
            "wire_ms": None if wire is None else round(wire, 3),
            "stages": [{"decode_ms": round(ms, 3)} for ms in stages],
        }
        found = None if predicted is None else drift(predicted, rounds)
        if predicted is not None and found is not None:
            shown |= _compared(predicted, found, stages)
            self._judge(found)
        self._shown = shown

    def show(self) -> dict[str, object]:
        """JSON-ready; empty before there was anything to see."""
        return self._shown

    def _is_of(self, layout: Layout) -> bool:
        held = [] if self._predicted is None else [(spot.first, spot.end) for spot in self._predicted.layout]
        return held == list(layout.ranges)

    def _at(self, rows: int, depth: int) -> Price:
        """The prediction for rounds of so many rows at about that depth."""
        assert self._problem is not None
        assert self._predicted is not None
        key = rows, max(1, round(depth / _DEPTH)) * _DEPTH
        if key not in self._prices:
            problem = self._problem
            wanted = replace(problem.wanted, rows=rows, depth=key[1])
            self._prices[key] = price(problem.model, problem.fleet, wanted, problem.goal, self._predicted.layout)
        return self._prices[key]

    def _judge(self, found: Drift) -> None:
        self._strikes = self._strikes + 1 if found.cause else 0
        if not found.cause:
            self._reported = False
        elif self._strikes >= STANDING and not self._reported:
            self._reported = True
            self._report(
                f"a token takes {found.measured_ms:.2f} ms, {found.predicted_ms:.2f} were predicted: {found.cause}"
            )


def _compared(predicted: Price, found: Drift, stages: Sequence[float]) -> dict[str, object]:
    return {
        "predicted_ms": round(found.predicted_ms, 3),
        "ratio": round(found.ratio, 3),
        "first_token_ms": round(predicted.first_token_ms, 1),
        "cause": found.cause,
        "stages": [
            {
                "node": stage.spot.node,
                "decode_ms": round(ms, 3),
                "predicted_ms": round(stage.decode_ms, 3),
                "ratio": round(ratio, 3),
            }
            for stage, ms, ratio in zip(predicted.stages, stages, found.stages, strict=True)
        ],
    }


def decode_rounds(records: Sequence[RoundRecord], world: int) -> tuple[list[Round], int]:
    """The rounds that have as many rows as the latest one of a single part, and how many rows that is.

    Rounds with prompts in them are longer than that, or of several parts.
    """
    whole = [r for r in records if r.parts == 1 and r.landed_ns and r.back_ns and len(r.dones) == world - 1]
    if not whole:
        return [], 0
    rows = whole[-1].rows
    found = []
    for record in whole:
        if record.rows == rows:
            others = [record.dones[rank].forward_ns for rank in range(1, world)]
            wire = record.wire_ns(world)
            stages = ((record.own_ns + record.head_ns) / 1e6, *(ns / 1e6 for ns in others))
            found.append(Round(stages, None if wire is None else wire / 1e6))
    return found[-ENOUGH:], rows
