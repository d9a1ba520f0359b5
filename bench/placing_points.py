"""What bench/placing.py has measured so far: calibrated nodes and cuts, kept in a file between pieces of a long run."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ropeway.placement.facts import Node
from ropeway.placement.inventory import node_from, node_json


@dataclass(frozen=True, slots=True)
class Point:
    """One cut (after the last layer: rank 0 alone): predicted and measured milliseconds of a token and to the first.

    Measured are means without the tenth at either end, as calibrations have them. `stages_ms` are each stage's forward
    of a token, `parts_ms` those of a whole prompt; `others` is the share of the machine others had.
    """

    ratio: int
    cut: int
    decode_ms: float
    decode_measured_ms: float
    first_ms: float
    first_measured_ms: float
    stages_ms: tuple[float, ...] = ()
    stages_predicted_ms: tuple[float, ...] = ()
    parts_ms: tuple[float, ...] = ()
    parts_predicted_ms: tuple[float, ...] = ()
    wire_ms: float = 0.0
    decode_spread: float = 0.0
    first_spread: float = 0.0
    """What this cut's own slowest pass took more than its fastest, as a share."""
    others: float = 0.0

    @property
    def decode_error(self) -> float:
        """Predicted by measured, less 1."""
        return self.decode_ms / self.decode_measured_ms - 1

    @property
    def first_error(self) -> float:
        """The same for the first token."""
        return self.first_ms / self.first_measured_ms - 1

    def __str__(self) -> str:
        def row(times: Sequence[float]) -> str:
            return ", ".join(f"{ms:.2f}" if ms < 100 else f"{ms:.0f}" for ms in times)

        return (
            f"1:{self.ratio} cut {self.cut:2}: {self.decode_ms:6.2f} ms a token, measured "
            f"{self.decode_measured_ms:6.2f} ({self.decode_error:+.1%}); first token {self.first_ms:6.0f}, measured "
            f"{self.first_measured_ms:6.0f} ({self.first_error:+.1%}); stages {row(self.stages_predicted_ms)}, "
            f"measured {row(self.stages_ms)}; prompt {row(self.parts_predicted_ms)}, measured {row(self.parts_ms)}; "
            f"wire {self.wire_ms:.2f}; others {self.others:.0%}"
        )


def median_point(visits: Sequence[Point]) -> Point:
    """One cut over all passes: medians."""

    def means(rows: Iterable[Sequence[float]]) -> tuple[float, ...]:
        return tuple(map(statistics.median, zip(*rows, strict=True)))

    return replace(
        visits[0],
        decode_ms=statistics.median(point.decode_ms for point in visits),
        decode_measured_ms=statistics.median(point.decode_measured_ms for point in visits),
        first_ms=statistics.median(point.first_ms for point in visits),
        first_measured_ms=statistics.median(point.first_measured_ms for point in visits),
        stages_ms=means(point.stages_ms for point in visits),
        stages_predicted_ms=means(point.stages_predicted_ms for point in visits),
        parts_ms=means(point.parts_ms for point in visits),
        parts_predicted_ms=means(point.parts_predicted_ms for point in visits),
        wire_ms=statistics.median(point.wire_ms for point in visits),
        decode_spread=_apart([point.decode_measured_ms for point in visits]),
        first_spread=_apart([point.first_measured_ms for point in visits]),
        others=max(point.others for point in visits),
    )


def _apart(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1


class Pieces:
    """Measurements in `file` (kept nowhere where it is None); after `budget_s` there is time for no more."""

    def __init__(self, file: Path | None, budget_s: float) -> None:
        self._file = file
        self._ends = time.monotonic() + budget_s
        value = json.loads(file.read_text()) if file is not None and file.exists() else {"nodes": {}, "points": {}}
        self._nodes: dict[str, Node] = {name: node_from(node) for name, node in value["nodes"].items()}
        self._points: dict[str, Point] = {name: Point(**point) for name, point in value["points"].items()}
        self.left = 0
        """Cuts that there was no time for."""

    @property
    def over(self) -> bool:
        """The time is over."""
        return time.monotonic() > self._ends

    def node(self, name: str) -> Node | None:
        """A node that is calibrated already."""
        return self._nodes.get(name)

    def point(self, ratio: int, cut: int, number: int) -> Point | None:
        """A cut that is measured already in this pass."""
        return self._points.get(f"1:{ratio} {cut} {number}")

    def keep(self, what: Node | Point, name: str = "") -> None:
        """Remember a node under `name`, or a point as of the pass `name`."""
        if isinstance(what, Node):
            self._nodes[name] = what
        else:
            self._points[f"1:{what.ratio} {what.cut} {name}"] = what
        if self._file is not None:
            nodes = {name: node_json(node) for name, node in self._nodes.items()}
            points = {name: asdict(point) for name, point in self._points.items()}
            self._file.write_text(json.dumps({"nodes": nodes, "points": points}, indent=1))
