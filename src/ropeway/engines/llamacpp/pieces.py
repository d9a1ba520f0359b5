"""Cutting a batch into pieces that llama.cpp runs as one graph each, with their rows in the order given.

llama.cpp splits a batch by itself, and may reorder it, where sequences have different row counts or where there is a
gap between their numbers. Cutting by the same rule beforehand keeps every graph's rows in a known order, for a stage
and for the whole model alike, so both run the same row batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ropeway.engines.base import Span


@dataclass(frozen=True, slots=True)
class Piece:
    """One graph: its spans, ascending by slot without a gap, of equal row counts.

    `rows` are its rows' indices in the batch. `wanted` are indices in the piece, `places` the same rows' indices
    among the batch's wanted rows; None for both where every row is wanted.
    """

    spans: tuple[Span, ...]
    rows: range | tuple[int, ...]
    wanted: tuple[int, ...] | None
    places: tuple[int, ...] | None

    @property
    def whole(self) -> bool:
        """The rows stand together in the batch, in order."""
        return isinstance(self.rows, range)


def cut_batch(spans: Sequence[Span], wanted: Sequence[int] | None) -> list[Piece]:
    """The pieces of a batch. `wanted` are row indices in the batch, ascending, or None for every row."""
    starts = []
    at = 0
    for span in spans:
        starts.append(at)
        at += span.rows
    order = sorted(range(len(spans)), key=lambda index: (spans[index].rows, spans[index].slot))
    groups: list[list[int]] = []
    for index in order:
        if groups:
            last = spans[groups[-1][-1]]
            if last.rows == spans[index].rows and last.slot + 1 == spans[index].slot:
                groups[-1].append(index)
                continue
        groups.append([index])
    return [_piece(group, spans, starts, wanted) for group in groups]


def _piece(group: list[int], spans: Sequence[Span], starts: list[int], wanted: Sequence[int] | None) -> Piece:
    held = tuple(spans[index] for index in group)
    together = all(a + 1 == b for a, b in pairwise(group))
    rows: range | tuple[int, ...]
    if together:
        last = group[-1]
        rows = range(starts[group[0]], starts[last] + spans[last].rows)
    else:
        rows = tuple(row for index in group for row in range(starts[index], starts[index] + spans[index].rows))
    if wanted is None:
        return Piece(held, rows, None, None)
    place_of = {row: place for place, row in enumerate(wanted)}
    picked = [(local, place_of[row]) for local, row in enumerate(rows) if row in place_of]
    return Piece(held, rows, tuple(local for local, _ in picked), tuple(place for _, place in picked))
