"""What a plan asks of a stage's engine, as values: operations on slots, and the parts to run.

Pure: the standard library alone. Judges nothing; slots.py has done so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ropeway.types import Span
from ropeway.wire import Plan


@dataclass(frozen=True, slots=True)
class Keep:
    """Forget the positions of `slot` from `length` on."""

    slot: int
    length: int


@dataclass(frozen=True, slots=True)
class Release:
    """Forget all of `slot`."""

    slot: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Put the state kept under `key` into the empty `slot`."""

    slot: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Save:
    """Keep a copy of the state of `slot` under `key`; rank 0 wants to hear whether it worked."""

    slot: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget what is kept under `key`. A stage whose save failed has nothing there: no error."""

    key: bytes


Operation = Keep | Release | Restore | Save | Drop


@dataclass(frozen=True, slots=True)
class Part:
    """One forward: the rows start..start+rows of the round, their spans in order (a slot at most once).

    `returns` are indices in the part, ascending, of the rows that go back to rank 0.
    """

    start: int
    rows: int
    spans: tuple[Span, ...]
    returns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageWork:
    """What a stage executes for a plan: `before` in order, the parts in order, `after` in order."""

    before: tuple[Operation, ...]
    parts: tuple[Part, ...]
    after: tuple[Save, ...]


def cut_parts(plan: Plan, slots: Mapping[int, int]) -> tuple[Part, ...]:
    """The parts of a plan whose streams live in the engine slots `slots`."""
    parts: list[Part] = []
    returned = plan.returned_rows()
    at = taken = 0
    entries = iter(plan.entries)
    slot = left = first = 0
    for start, stop in plan.part_ranges():
        spans: list[Span] = []
        while at < stop:
            if not left:
                entry = next(entries)
                if not entry.rows:
                    continue
                slot, first, left = slots[entry.stream], entry.first, entry.rows
            rows = min(left, stop - at)
            spans.append(Span(slot, first, rows))
            first, left, at = first + rows, left - rows, at + rows
        begin = taken
        while taken < len(returned) and returned[taken] < stop:
            taken += 1
        parts.append(Part(start, stop - start, tuple(spans), tuple(row - start for row in returned[begin:taken])))
    return tuple(parts)
