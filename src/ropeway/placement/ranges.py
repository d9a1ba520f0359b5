"""Which layers to load for a calibration: few, but enough to tell the kinds apart. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ropeway.placement.facts import Model

MOST_BYTES: Final = 2_000_000_000
"""Weights of the largest stage that is timed, unless two layers are more."""
SHARE: Final = 0.5
"""The largest stage holds at most this share of the model's layers, where that leaves two."""


def kinds_in(model: Model, first: int, end: int) -> dict[str, int]:
    """Layers of each kind in a range."""
    return dict(Counter(layer.kind for layer in model.layers[first:end]))


def ranges_to_time(model: Model, cut_every: int = 1, most_bytes: int = MOST_BYTES) -> list[tuple[int, int]]:
    """Ranges whose times tell a stage's own part and every kind of layer apart, as well as the cuts allow.

    The first begins at 0. None reaches the last layer, which engines run otherwise, unless there is no other way.
    """
    layers = len(model.layers)
    cuts = [at for at in range(layers + 1) if at % cut_every == 0 or at == layers]
    inner = [at for at in cuts if 0 < at < layers] or [layers]
    fits = [end for end in inner if sum(x.weights_bytes for x in model.layers[:end]) <= most_bytes]
    fits = [end for end in fits if end <= max(2, SHARE * layers)] or inner[:2]
    large = fits[-1]
    small = min(fits, key=lambda end: abs(end - large / 2))
    found = [(0, large)] if small == large else [(0, small), (0, large)]
    wanted = len(model.kinds) + 1
    widths = sorted(range(cut_every, 2 * small + 1, cut_every), key=lambda width: abs(width - small))
    candidates = [(a, a + width) for width in widths for a in cuts[:-1] if a + width in cuts]
    for candidate in [*(c for c in candidates if c[1] < layers), *candidates]:
        if _rank(model, found) >= wanted:
            break
        if _rank(model, [*found, candidate]) > _rank(model, found):
            found.append(candidate)
    return found


def kinds_apart(model: Model, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether the ranges' times tell every kind apart. Where the cuts keep a pattern of layers together, none do."""
    return _rank(model, ranges) > len(model.kinds)


def _rank(model: Model, ranges: Sequence[tuple[int, int]]) -> int:
    """How many unknowns (a stage's own part, and each kind) the ranges' times determine."""
    rows = []
    for first, end in ranges:
        counts = kinds_in(model, first, end)
        rows.append([1.0, *(float(counts.get(kind, 0)) for kind in model.kinds)])
    rank = 0
    for column in range(len(model.kinds) + 1):
        pivot = next((r for r in range(rank, len(rows)) if abs(rows[r][column]) > 1e-9), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for r in range(rank + 1, len(rows)):
            factor = rows[r][column] / rows[rank][column]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[rank], strict=True)]
        rank += 1
    return rank
