"""What a bench found, in one form for people, for `--json`, and for the tables and plots that suite.py makes of it."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness import machine


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure: its median with the quartiles (all of it where there are few), and what it is held against.

    `ideal` is what arithmetic allows, `aim` what was hoped for, `limit` what must be met; `more` says that more is
    better.
    """

    name: str
    unit: str
    count: int
    median: float | None
    low: float | None
    high: float | None
    ideal: float | None = None
    aim: float | None = None
    limit: float | None = None
    more: bool = True

    @classmethod
    def of(
        cls,
        name: str,
        unit: str,
        values: Sequence[float],
        *,
        ideal: float | None = None,
        aim: float | None = None,
        limit: float | None = None,
        more: bool = True,
    ) -> Figure:
        """From what was measured; nothing where all of it was thrown away."""
        if not values:
            return cls(name, unit, 0, None, None, None, ideal, aim, limit, more)
        low, high = min(values), max(values)
        if len(values) >= 4:
            low, _, high = statistics.quantiles(values, n=4)
        return cls(name, unit, len(values), statistics.median(values), low, high, ideal, aim, limit, more)

    @property
    def met(self) -> bool | None:
        """Whether it keeps its limit, or its aim where it has no limit; None where there is neither, or no figure."""
        bound = self.aim if self.limit is None else self.limit
        if bound is None or self.median is None:
            return None
        return self.median >= bound if self.more else self.median <= bound

    @property
    def share(self) -> float | None:
        """Of the ideal, 1 at best."""
        if self.ideal is None or not self.median:
            return None
        return self.median / self.ideal if self.more else self.ideal / self.median


@dataclass(frozen=True, slots=True)
class Result:
    """One bench's figures; `setting` says of what, `notes` what a reader should know."""

    bench: str
    setting: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    machine: str = field(default_factory=machine)
    command: str = ""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Result:
        """What `as_json` made."""
        figures = tuple(Figure(**figure) for figure in value["figures"])
        return cls(value["bench"], value["setting"], figures, tuple(value["notes"]), value["machine"], value["command"])

    def as_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    def tell(self, args: argparse.Namespace, more: dict[str, object] | None = None) -> None:
        """Print it: one JSON object with `--json` (with `more` in it), lines for people otherwise."""
        if args.json:
            words = [word for word in sys.argv[1:] if word != "--json"]
            command = " ".join(["python", f"bench/{self.bench}.py", *words])
            print(json.dumps({**(more or {}), **self.as_json(), "command": command}))
            return
        print("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """For people: a line a figure, its ideal beside it."""
        width = max((len(figure.name) for figure in self.figures), default=0)
        told = [f"  {one.name:{width}}  {_measured(one):34} {_bounds(one)}".rstrip() for one in self.figures]
        return [f"{self.bench}: {self.setting}", self.machine, *told, *self.notes]


def number(value: float | None) -> str:
    """Three figures that count: 1234.5 -> 1,234; 0.0123 -> 0.012."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def _measured(figure: Figure) -> str:
    if figure.median is None:
        return "none: others were busy"
    return f"{number(figure.median)} ({number(figure.low)} to {number(figure.high)}) {figure.unit}"


def _bounds(figure: Figure) -> str:
    named = (("ideal", figure.ideal), ("aim", figure.aim), ("limit", figure.limit))
    told = [f"{name} {number(value)}" for name, value in named if value is not None]
    if figure.met is not None:
        told.append("met" if figure.met else "missed")
    return ", ".join(told)
