"""One pass over every order and every cut: the cheapest sum where no stage or link passes a limit. Pure.

A state is (rank 0's node, the nodes used so far, the last of them); its row holds, for each layer, the least sum of a
chain of stages that ends there. All chains of a length are made at once from those that are a stage shorter: a stage's
cost is a difference of prefix sums, so its best first layer is a minimum over a window. A chain is dropped where what
is left would cost too much even if every hop were the cheapest one into its node (`_rest`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from ropeway.placement.arrays import Arrays, Floats, Ints, sliding
from ropeway.placement.tables import Found, priced

GRAIN = 1 - 1e-12
"""Bounds lose a grain, so that they stay bounds whatever the rounding."""


@dataclass(frozen=True, slots=True)
class _Chains:
    """Chains of one length. sums[i, k]: the least of those of state i that end at layer low + k."""

    used: Ints
    first: Ints
    last: Ints
    sums: Floats
    low: int

    def pick(self, keep: Floats) -> _Chains:
        """Those whose rows have something to keep, over the layers that do."""
        rows = np.flatnonzero(keep.any(axis=1))
        ends = np.flatnonzero(keep.any(axis=0))
        if not len(rows):
            return _Chains(self.used[:0], self.first[:0], self.last[:0], self.sums[:0], self.low)
        a, b = ends[0], ends[-1] + 1
        sums = np.where(keep[rows, a:b], self.sums[rows, a:b], inf)
        return _Chains(self.used[rows], self.first[rows], self.last[rows], sums, self.low + int(a))


class Pass:
    """The tables with limits (exclusive) on a mean part's time and on a round's, for rings of few..most stages.

    `below`: only sums under it matter.
    """

    def __init__(
        self,
        arrays: Arrays,
        part_limit: float = inf,
        round_limit: float = inf,
        few: int = 1,
        most: int = 0,
        below: float = inf,
    ) -> None:
        self._arrays, self._tables = arrays, arrays.tables
        self._count, self._layers = len(arrays.tables.names), arrays.tables.layers
        self._few, self._most = few, min(most or self._count, self._count, self._layers)
        self._below = below
        self._begins = arrays.begins(part_limit, round_limit)
        self._windows = arrays.windows(part_limit, round_limit)
        self._ahead = arrays.ahead.under(part_limit, round_limit)
        self._back = arrays.back.under(part_limit, round_limit)
        self._trail: list[_Chains] = []

    def cheapest(self) -> Found | None:
        """The layout with the least sum, of few stages among equals; None where there is none."""
        best = self._lone()
        if self._most < 2:
            return best
        rest, begun = self._rest(), self._begun()
        for size in range(2, self._most + 1):
            left = rest[~begun.used & ((1 << self._count) - 1)][:, begun.low : begun.low + begun.sums.shape[1]]
            begun = begun.pick(begun.sums + left < self._below)
            if not len(begun.used):
                break
            self._trail.append(begun)
            begun, found = self._longer(begun, size)
            best = found or best
        return best

    def _lone(self) -> Found | None:
        """The best node that has everything."""
        arrays, tables, best = self._arrays, self._tables, None
        for node in tables.starts if self._few <= 1 else ():
            total = float(arrays.alone[node])
            if not self._begins[node, -1] or tables.must & ~(1 << node) or total >= self._below:
                continue
            self._below = total
            best = priced(tables, (node,), (0, self._layers))
        return best

    def _begun(self) -> _Chains:
        """Rank 0's own stages, by where they end."""
        starts = np.array(self._tables.starts, dtype=np.int64)
        ends = slice(1, self._layers)
        sums = np.where(self._begins[starts, ends], self._arrays.begun[starts, ends], inf)
        return _Chains(1 << starts, starts, starts, sums, 1)

    def _rest(self) -> Floats:
        """By set of nodes and layer: what the layers from there on cost at least on nodes of the set, and the end."""
        arrays, count, layers = self._arrays, self._count, self._layers
        enter = np.where(np.eye(count, dtype=bool), inf, self._ahead).min(axis=0) + arrays.plus
        close = np.where(np.eye(count, dtype=bool), inf, self._back).min() + arrays.once.min()
        rest, sets = np.full((1 << count, layers + 1), inf), arrays.sets
        for size in range(count - self._most, count - self._few + 1):
            rest[sets[size].of, layers] = close
        until = np.zeros((count, layers + 1), dtype=np.int64)
        every = np.arange(layers + 1)
        node, end = np.nonzero(self._windows < every)
        until[node, self._windows[node, end]] = end + 1
        until = np.maximum.accumulate(until, axis=1)
        longest = np.maximum(every - self._windows, every * self._begins).max(axis=1)
        held = [0, *np.cumsum(np.sort(longest)[::-1]).tolist()]
        low, high = layers, layers
        for size in range(count - self._most + 1, count):
            ends = slice(low, high + 1)
            low, high = max(0, layers - held[size + self._most - count]), min(layers, held[count - size])
            if low > high:
                break
            at = np.arange(low, high + 1)
            of, node, without = sets[size].of, sets[size].node, sets[size].without
            rows = rest[without, ends] + arrays.prefix[node, ends]
            if ends.stop > layers:
                rows[:, -1] += arrays.last[node]
            most = np.minimum(until[:, at], ends.stop) - ends.start
            found = sliding(rows, node, np.broadcast_to(np.maximum(at + 1 - ends.start, 0), most.shape), most)
            found += enter[node, None] - arrays.prefix[node, low : high + 1]
            found = found.reshape(len(of), size, len(at)).min(axis=1)
            rest[of, low : high + 1] = np.minimum(rest[of, low : high + 1], found)
        return rest * GRAIN

    def _longer(self, chains: _Chains, size: int) -> tuple[_Chains, Found | None]:
        """The chains of `size` stages, and the best layout that ends with one of them if it is below all so far."""
        arrays, tables, layers, low = self._arrays, self._tables, self._layers, chains.low
        used, first, last, joined = self._joined(chains)
        joined -= arrays.prefix[last, low : low + joined.shape[1]]
        joined[~arrays.cuts[last, low : low + joined.shape[1]]] = inf
        width = joined.shape[1]
        window = self._windows[:, low + 1 :] - low
        total = np.where(np.arange(width) < window[last, -1:], inf, joined).min(axis=1)
        total += arrays.prefix[last, -1] + arrays.plus[last] + arrays.last[last]
        sums = np.empty((len(last), 0))
        if size < self._most:
            until = np.minimum(np.arange(1, layers - low), width)
            window = np.maximum(window[:, :-1], 0)
            sums = sliding(joined, last, window, np.broadcast_to(until, window.shape))
            sums += arrays.prefix[last, low + 1 : -1] + arrays.plus[last, None]
        longer = _Chains(used, first, last, sums, low + 1)
        if size < self._few:
            return longer, None
        total += self._back[last, first] + arrays.once[last if tables.head_last else first]
        total[(tables.must & ~used) != 0] = inf
        if not total.min() < self._below:
            return longer, None
        equal = np.flatnonzero(total <= total.min() / GRAIN)
        at = equal[first[equal].argmin()]  # of equals, the one that begins with the node that is named first
        self._below = float(total[at])
        return longer, self._path(int(used[at]), int(first[at]), int(last[at]))

    def _joined(self, chains: _Chains) -> tuple[Ints, Ints, Ints, Floats]:
        """States by used nodes, first and last (sorted by the last), and their sums before the last one's stage."""
        count = self._count
        last, source = np.nonzero((chains.used >> np.arange(count)[:, None] & 1) == 0)
        key = (last << count | chains.used[source]) * count + chains.first[source]
        order = np.argsort(key, kind="stable")
        key, source = key[order], source[order]
        begins = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        sizes = np.diff(begins, append=len(key))
        last, one = last[order][begins], source[begins]
        joined = np.full((len(begins), chains.sums.shape[1]), inf)
        for turn in range(sizes.max()):
            to = np.flatnonzero(sizes > turn)
            sender = source[begins[to] + turn]
            sums = chains.sums[sender] + self._ahead[chains.last[sender], last[to]][:, None]
            joined[to] = np.minimum(joined[to], sums) if turn else sums
        return chains.used[one] | 1 << last, chains.first[one], last, joined

    def _path(self, used: int, first: int, last: int) -> Found:
        """The way back from the end to rank 0."""
        arrays, tables = self._arrays, self._tables
        order, cuts = [last], [self._layers]
        for chains in reversed(self._trail):
            node, end, low = order[-1], cuts[-1], chains.low
            used &= ~(1 << node)
            rows = np.flatnonzero((chains.used == used) & (chains.first == first))
            at = np.arange(low, low + chains.sums.shape[1])
            sums = chains.sums[rows] + self._ahead[chains.last[rows], node][:, None] - arrays.prefix[node, at]
            sums[:, ~arrays.cuts[node, at] | (at < self._windows[node, end]) | (at >= end)] = inf
            row, cut = np.unravel_index(int(sums.argmin()), sums.shape)
            order.append(int(chains.last[rows[row]]))
            cuts.append(low + int(cut))
        order, cuts = order[::-1], [0, *cuts[::-1]]
        return priced(tables, tuple(order), tuple(cuts))
