"""One pass over every order and every cut: the cheapest sum where no stage or link passes a limit. Pure.

A state is (rank 0's node, the nodes used so far, the last of them); its row holds, for each layer, the least sum of a
chain of stages that ends there. A node is put behind in one sweep over the layers: the best first layer for each end is
a minimum over a window that only moves on, because a stage's cost is a difference of prefix sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf

from ropeway.placement.tables import Tables


@dataclass(frozen=True, slots=True)
class Found:
    """A layout by node numbers: stage k has layers cuts[k]..cuts[k + 1]. `part` and `round` are its slowest."""

    total: float
    part: float
    round: float
    order: tuple[int, ...]
    cuts: tuple[int, ...]


@dataclass(slots=True)
class _Row:
    """Least sums by the layer that a chain ends at; all finite ones lie in low..high."""

    sums: list[float]
    low: int
    high: int


class Pass:
    """The tables with limits (exclusive) on a mean part's time and on a round's, for rings of `world` stages (0: any).

    `below`: only sums under it matter.
    """

    def __init__(
        self, tables: Tables, part_limit: float = inf, round_limit: float = inf, world: int = 0, below: float = inf
    ) -> None:
        self._tables = tables
        self._limits = (part_limit, round_limit)
        self._world = world
        self._below = below
        self._count = len(tables.names)
        self._windows = [node.windows(part_limit, round_limit) for node in tables.later]
        self._fronts = [node.windows(part_limit, round_limit) for node in tables.first]
        self._furthest = [_furthest(window) for window in self._windows]
        self._behind = _behind(self._windows, self._count, tables.layers)
        self._bounds: dict[int, list[float]] = {}
        self._rates = [
            (_cheapest_layer(node.total.prefix), max(end - start for end, start in enumerate(window)))
            for node, window in zip(tables.later, self._windows, strict=True)
        ]
        """By node: what its cheapest layer costs, and how many layers it can hold."""

    def possible(self) -> bool:
        """Whether memory and limits allow any layout, links and joints left aside. Never wrong where it says no."""
        layers, everyone = self._tables.layers, (1 << self._count) - 1
        return any(
            any(low == 0 for low in self._fronts[first][max(1, self._behind[everyone & ~(1 << first)]) : layers + 1])
            for first in self._tables.starts
        )

    def cheapest(self) -> Found | None:
        """The layout with the least sum, of few stages among equals; None where there is none."""
        if not self.possible():
            return None
        best: Found | None = None
        for first in self._tables.starts:
            for found in self._from(first):
                if best is None or found.total < best.total:
                    best = found
                    self._below = min(self._below, found.total)
        return best

    def _from(self, first: int) -> Iterator[Found]:
        """Layouts with this rank 0, each better than the one before."""
        lone = self._alone(first)
        if lone is not None:
            yield lone
        if self._world == 1:
            return
        rest = ((1 << self._count) - 1) & ~(1 << first)
        rows: dict[tuple[int, int], _Row] = {}
        if (start := self._start(first, rest)) is None:
            return
        rows[0, first] = start
        self._bounds.clear()
        least = self._least_behind()
        for used in _subsets(rest, self._world - 1 if self._world else self._count):
            for last in _bits(used):
                before = used & ~(1 << last)
                joined = self._joined(rows, before, last, first)
                if joined is None:
                    continue
                found = self._whole(rows, joined, first, used, last)
                if found is not None:
                    self._below = min(self._below, found.total)
                    yield found
                if self._world and used.bit_count() >= self._world - 1:
                    continue
                left = rest & ~used
                if left not in self._bounds:
                    self._bounds[left] = list(map(max, least, self._filled(left)))
                row = self._behind_row(joined, last, self._behind[left], self._bounds[left])
                if row is not None:
                    rows[used, last] = row

    def _alone(self, first: int) -> Found | None:
        tables, layers = self._tables, self._tables.layers
        if self._world > 1 or tables.must & ~(1 << first) or self._fronts[first][layers] != 0:
            return None
        node = tables.first[first]
        total = tables.alone[first].of(0, layers) + tables.once[first]
        if total >= self._below:
            return None
        return Found(total, node.part.of(0, layers), node.round.of(0, layers), (first,), (0, layers))

    def _start(self, first: int, rest: int) -> _Row | None:
        """Rank 0's own stage, by where it ends."""
        layers, total = self._tables.layers, self._tables.first[first].total
        sums = [inf] * (layers + 1)
        ends = [end for end in range(max(1, self._behind[rest]), layers) if self._fronts[first][end] == 0]
        for end in ends:
            sums[end] = total.of(0, end)
        return _Row(sums, ends[0], ends[-1]) if ends else None

    def _least_behind(self) -> list[float]:
        """For each layer, what the layers from there on cost at least, whoever holds them."""
        steps = []
        prefixes = [node.total.prefix for node in self._tables.later]
        for layer in range(self._tables.layers):
            steps.append(min(prefix[layer + 1] - prefix[layer] for prefix in prefixes))
        return list(accumulate(reversed(steps), initial=0.0))[::-1]

    def _filled(self, nodes: int) -> list[float]:
        """For each layer, what the layers from there on cost at least on these nodes: the cheapest filled up first."""
        found = [inf] * (self._tables.layers + 1)
        found[-1] = cost = 0.0
        at = self._tables.layers
        for layer_cost, most in sorted(self._rates[node] for node in _bits(nodes)):
            for _ in range(min(most, at)):
                at -= 1
                cost += layer_cost
                found[at] = cost
        return found

    def _allowed(self, sender: int, receiver: int) -> bool:
        hop = self._tables.ahead[sender][receiver]
        return hop.part < self._limits[0] and hop.round < self._limits[1]

    def _senders(self, rows: dict[tuple[int, int], _Row], used: int, receiver: int, first: int) -> list[int]:
        found = [first] if not used else [*_bits(used)]
        return [sender for sender in found if (used, sender) in rows and self._allowed(sender, receiver)]

    def _joined(self, rows: dict[tuple[int, int], _Row], used: int, receiver: int, first: int) -> _Row | None:
        """The least sums of chains over `first` and `used`, with the hop to `receiver` behind them."""
        senders = self._senders(rows, used, receiver, first)
        if not senders:
            return None
        low = min(rows[used, sender].low for sender in senders)
        high = max(rows[used, sender].high for sender in senders)
        columns = []
        for sender in senders:
            hop = self._tables.ahead[sender][receiver].total
            columns.append([x + hop for x in rows[used, sender].sums[low : high + 1]])
        merged = columns[0] if len(columns) == 1 else list(map(min, *columns))
        cuts = self._tables.later[receiver].cuts
        if not all(cuts[low : high + 1]):
            merged = [x if cuts[at] else inf for at, x in enumerate(merged, low)]
        return _Row(merged, low, high)

    def _behind_row(self, joined: _Row, node: int, from_layer: int, least: list[float]) -> _Row | None:
        """`node` put behind chains that end in joined.low..joined.high; rows[i] of `joined.sums` is layer low + i."""
        total, window = self._tables.later[node].total, self._windows[node]
        prefix, plus, layers, below = total.prefix, total.plus, self._tables.layers, self._below
        sums = [inf] * (layers + 1)
        low_seen, high_seen = layers, 0
        values: list[float] = []
        places: list[int] = []
        head, at, high, offset = 0, joined.low, joined.high, joined.low
        for end in range(joined.low + 1, min(layers - 1, self._furthest[node][high]) + 1):
            while at < end and at <= high:
                value = joined.sums[at - offset]
                if value < inf:
                    value -= prefix[at]
                    while len(values) > head and values[-1] >= value:
                        values.pop()
                        places.pop()
                    values.append(value)
                    places.append(at)
                at += 1
            start = window[end]
            if start >= end or end < from_layer:
                continue
            while head < len(values) and places[head] < start:
                head += 1
            if head == len(values):
                continue
            value = values[head] + prefix[end] + plus
            if value + least[end] < below:
                sums[end] = value
                high_seen = end
                if low_seen == layers:
                    low_seen = end
        return _Row(sums, low_seen, high_seen) if high_seen else None

    def _whole(self, rows: dict[tuple[int, int], _Row], joined: _Row, first: int, used: int, last: int) -> Found | None:
        """The layouts that end with `last`, if the best of them is below everything so far."""
        tables, layers = self._tables, self._tables.layers
        if tables.must & ~used & ~(1 << first) or (self._world and used.bit_count() != self._world - 1):
            return None
        node, back = tables.later[last], tables.back[last][first]
        if back.part >= self._limits[0] or back.round >= self._limits[1]:
            return None
        start = max(self._windows[last][layers], joined.low)
        if start > joined.high or start >= layers:
            return None
        prefix = node.total.prefix
        least = min(map(float.__sub__, joined.sums[start - joined.low :], prefix[start : joined.high + 1]))
        once = tables.once[last if tables.head_last else first]
        total = least + prefix[layers] + node.total.plus + node.total.last + back.total + once
        if not total < self._below:
            return None
        return self._path(rows, first, used, last, total)

    def _path(self, rows: dict[tuple[int, int], _Row], first: int, used: int, last: int, total: float) -> Found:
        """The way back from the end to rank 0."""
        tables = self._tables
        order, cuts = [last], [tables.layers]
        while used:
            node, end = order[-1], cuts[-1]
            used &= ~(1 << node)
            start = self._windows[node][end]
            choices = []
            for sender in self._senders(rows, used, node, first):
                row, hop = rows[used, sender], tables.ahead[sender][node].total
                prefix, allowed = tables.later[node].total.prefix, tables.later[node].cuts
                for at in range(max(start, row.low), min(end - 1, row.high) + 1):
                    if allowed[at] and row.sums[at] < inf:
                        choices.append((row.sums[at] + hop - prefix[at], at, sender))
            _, at, sender = min(choices)
            order.append(sender)
            cuts.append(at)
        return self._found(total, tuple(reversed(order)), (0, *reversed(cuts)))

    def _found(self, total: float, order: tuple[int, ...], cuts: tuple[int, ...]) -> Found:
        tables = self._tables
        held = [tables.first[order[0]], *(tables.later[node] for node in order[1:])]
        hops = [tables.ahead[a][b] for a, b in pairwise(order)] + [tables.back[order[-1]][order[0]]]
        ranges = list(pairwise(cuts))
        return Found(
            total,
            max([node.part.of(*range_) for node, range_ in zip(held, ranges, strict=True)] + [h.part for h in hops]),
            max([node.round.of(*range_) for node, range_ in zip(held, ranges, strict=True)] + [h.round for h in hops]),
            order,
            cuts,
        )


def _cheapest_layer(prefix: list[float]) -> float:
    """With a grain off, so that sums of it stay bounds whatever the rounding."""
    return min(b - a for a, b in pairwise(prefix)) * (1 - 1e-12)


def _furthest(window: list[int]) -> list[int]:
    """For each layer, the last end that a stage beginning there or before may have; 0 where there is none."""
    ends = [0] * len(window)
    for end, start in enumerate(window):
        if start < end:
            ends[start] = max(ends[start], end)
    return list(accumulate(ends, max))


def _behind(windows: list[list[int]], count: int, layers: int) -> list[int]:
    """For each set of nodes, the first layer from which on they can hold the rest, at the very best."""
    nearest = [list(accumulate(reversed(window), min))[::-1] for window in windows]
    found = [layers] * (1 << count)
    for used in range(1, 1 << count):
        best = layers
        for node in _bits(used):
            best = min(best, nearest[node][found[used & ~(1 << node)]])
        found[used] = best
    return found


def _bits(mask: int) -> list[int]:
    return [n for n in range(mask.bit_length()) if mask >> n & 1]


def _subsets(of: int, most: int) -> list[int]:
    """The non-empty subsets with at most so many members, small ones first."""
    found = [mask for mask in range(1, of + 1) if mask & of == mask and mask.bit_count() <= most]
    return sorted(found, key=int.bit_count)
