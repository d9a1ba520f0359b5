"""What a running ring was predicted to take against what it takes, and what that teaches. Pure.

A stage's ratio is measured by predicted. What stays beyond the tolerance is reported with its likely cause, and the
ratios stretch the nodes' costs for the next search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from ropeway.placement.cost import Price, Spot, price
from ropeway.placement.facts import Fleet
from ropeway.placement.search import search
from ropeway.placement.tables import Problem

TOLERANCE: Final = 0.15
"""A difference up to this share of the prediction is not worth a word."""
ENOUGH: Final = 24
"""Rounds that have to agree before a difference stands."""


@dataclass(frozen=True, slots=True)
class Round:
    """Milliseconds of one decode round: in each stage's engine, and on the wire (None where other rounds shared it)."""

    stages_ms: tuple[float, ...]
    wire_ms: float | None


@dataclass(frozen=True, slots=True)
class Drift:
    """Medians of the latest rounds by the prediction. `cause` is empty while everything is as predicted."""

    rounds: int
    measured_ms: float
    predicted_ms: float
    stages: tuple[float, ...]
    """Measured by predicted, each stage."""
    wire_ms: float
    cause: str = ""

    @property
    def ratio(self) -> float:
        """Measured by predicted, the whole token."""
        return self.measured_ms / self.predicted_ms if self.predicted_ms else 1.0


def measured(rounds: Sequence[Round]) -> tuple[list[float], float | None]:
    """Median milliseconds of each stage, and of the wire where most rounds had the ring for themselves."""
    stages = [median(times) for times in zip(*(one.stages_ms for one in rounds), strict=True)]
    wires = [one.wire_ms for one in rounds if one.wire_ms is not None]
    return stages, median(wires) if len(wires) > len(rounds) // 2 else None


def drift(predicted: Price, rounds: Sequence[Round]) -> Drift | None:
    """The latest `ENOUGH` rounds against the prediction; None before there are as many."""
    if len(rounds) < ENOUGH:
        return None
    latest = rounds[-ENOUGH:]
    stages, wire = measured(latest)
    if wire is None:
        wire = sum(hop.decode_ms for hop in predicted.hops)
    ratios = tuple(ms / max(stage.decode_ms, 1e-6) for ms, stage in zip(stages, predicted.stages, strict=True))
    found = Drift(len(latest), sum(stages) + wire, predicted.decode_ms, ratios, wire)
    return replace(found, cause=_cause(predicted, found, latest))


def _cause(predicted: Price, found: Drift, latest: Sequence[Round]) -> str:
    if abs(found.ratio - 1) <= TOLERANCE and all(abs(ratio - 1) <= TOLERANCE for ratio in found.stages):
        return ""
    wire = sum(hop.decode_ms for hop in predicted.hops)
    names = [stage.spot.node for stage in predicted.stages]
    slow = [rank for rank, ratio in enumerate(found.stages) if ratio > 1 + TOLERANCE]
    fast = [rank for rank, ratio in enumerate(found.stages) if ratio < 1 - TOLERANCE]
    if found.wire_ms - wire > TOLERANCE * predicted.decode_ms:
        return f"the links take {found.wire_ms:.2f} ms a token, {wire:.2f} were measured: a busy or slower link"
    if slow:
        what = ", ".join(f"rank {rank} ({names[rank]}) takes {found.stages[rank]:.2f} times as long" for rank in slow)
        spread = max(_spread([one.stages_ms[rank] for one in latest]) for rank in slow)
        if len(slow) == len(names) > 1 and max(found.stages) < 1.2 * min(found.stages):
            return f"{what}: all alike, so the load differs from the prediction's, or the calibration is old"
        if spread > TOLERANCE:
            return f"{what}, and unevenly: another process has the machine as well"
        return f"{what}, and evenly: a slower clock, or another process that never rests"
    if fast:
        what = ", ".join(f"rank {rank} ({names[rank]}) takes {found.stages[rank]:.2f} of its time" for rank in fast)
        return f"{what}: it was calibrated while the machine was busy, or hot"
    return f"a token takes {found.ratio:.2f} times the prediction, and no stage alone explains it"


def _spread(values: Sequence[float]) -> float:
    """Interquartile range as a share of the median."""
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    return (high - low) / max(median(ordered), 1e-9)


def learned(fleet: Fleet, ratios: Mapping[str, float]) -> Fleet:
    """The nodes with their costs stretched by what was measured on them, by name; the others as they were."""
    nodes = tuple(replace(node, slower=node.slower * ratios.get(node.name, 1.0)) for node in fleet.nodes)
    return replace(fleet, nodes=nodes)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The running layout and the best one, both by the measurements of the running ring."""

    running: Price
    best: Price

    @property
    def gain(self) -> float:
        """The share of the cost that the best one saves."""
        return 1 - self.best.cost / self.running.cost if self.running.cost else 0.0


def propose(
    problem: Problem, running: Sequence[Spot], stages_ms: Sequence[float], rows: int = 1, depth: int = 0
) -> Proposal:
    """What the busy times of a running ring (milliseconds of a round of `rows` rows at `depth`, by rank) say about
    where to cut.

    Raises Infeasible and ValueError as `search` and `price` do.
    """
    then = replace(problem.wanted, rows=rows, depth=depth)
    before = price(problem.model, problem.fleet, then, problem.goal, running)
    ratios = {
        stage.spot.node: ms / max(stage.decode_ms, 1e-6) for stage, ms in zip(before.stages, stages_ms, strict=True)
    }
    now = problem.with_fleet(learned(problem.fleet, ratios))
    return Proposal(price(now.model, now.fleet, now.wanted, now.goal, running), search(now))
