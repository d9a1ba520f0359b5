"""What one stream leaves behind on a stage: keys and values by layer, and recurrent states that can be rolled back.

Keys and values are rolled back by forgetting rows. A recurrent state cannot be cut, so a slot remembers the state
before each of its last calls and how to run a call's first rows again. It also remembers the state at the last
multiple of `GRAIN` positions, where a kept prompt is resumed. Tensors of states are never written to once they are
held here, so remembering one costs no copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from ropeway.engines.base import EngineError

GRAIN: Final = 64
"""DeltaNet's chunk: prompts cut at its multiples keep their bits (docs/exactness.md)."""
RECENT: Final = 16
"""Calls whose state before is remembered: what a verify round cut into single rows may roll back at no cost."""
_LEAST_ROOM = 128


@dataclass(slots=True)
class Rows:
    """Rows of one layer that grow: a buffer [..., room, width] of which the first `length` rows count."""

    buffer: Tensor | None = None
    length: int = 0

    def append(self, rows: Tensor, context: int) -> None:
        """Add rows [..., n, width] behind those that count."""
        stop = self.length + rows.shape[-2]
        if self.buffer is None or stop > self.buffer.shape[-2]:
            room = min(max(_LEAST_ROOM, stop + stop // 2), max(context, stop))
            grown = rows.new_empty((*rows.shape[:-2], room, rows.shape[-1]))
            if self.buffer is not None:
                grown[..., : self.length, :] = self.buffer[..., : self.length, :]
            self.buffer = grown
        self.buffer[..., self.length : stop, :] = rows
        self.length = stop

    def read(self, begin: int = 0, end: int | None = None) -> Tensor:
        """The rows that count, from `begin` on, up to `end`; a view."""
        assert self.buffer is not None
        return self.buffer[..., begin : self.length if end is None else end, :]

    def cut(self, length: int) -> None:
        """Forget the rows from `length` on."""
        self.length = min(self.length, length)


@dataclass(slots=True)
class KeyValues:
    """Keys and values of one layer, [1, heads, rows, width], and an indexer's keys, [1, rows, width]."""

    keys: Rows = field(default_factory=Rows)
    values: Rows = field(default_factory=Rows)
    index: Rows = field(default_factory=Rows)

    def parts(self) -> tuple[Rows, Rows, Rows]:
        """All of them."""
        return self.keys, self.values, self.index


@dataclass(slots=True)
class Recurrent:
    """The state of a layer that keeps no rows: the last inputs of its convolutions, by number, and a matrix a head."""

    conv: dict[int, Tensor] = field(default_factory=dict)
    matrix: Tensor | None = None

    def copy(self) -> Recurrent:
        """The same tensors in an object of its own."""
        return Recurrent(dict(self.conv), self.matrix)


States = dict[int, Recurrent]
"""By layer."""


@dataclass(slots=True)
class Call:
    """`rows` rows of a stream from position `first` on that recurrent layers have seen in one go.

    `before` are the states before it, where they are remembered; `replays` run its first n rows once more, layer by
    layer, or are None where that was not kept.
    """

    first: int
    rows: int
    before: States | None
    replays: list[Callable[[int], None]] | None


class Slot:
    """One stream's state on a stage, `context` positions at the most."""

    def __init__(self, context: int) -> None:
        self.context = context
        self.position = 0
        self.attention: dict[int, KeyValues] = {}
        self.states: States = {}
        self.calls: list[Call] = []

    def begin(self, first: int, rows: int) -> Call:
        """A call that recurrent layers are about to see."""
        call = Call(first, rows, {}, [] if rows <= GRAIN else None)
        self.calls.append(call)
        return call

    def enter(self, call: Call, layer: int, numbers: Collection[int]) -> Recurrent:
        """The state of a layer of which a part runs `call` now; what that part's was before is remembered.

        The part's are the convolutions `numbers`, and the matrix with number 0. A layer's parts may each run all calls
        of a forward before the next part does.
        """
        state = self.states.setdefault(layer, Recurrent())
        if call.before is not None:
            before = call.before.setdefault(layer, Recurrent())
            before.conv.update((number, held) for number, held in state.conv.items() if number in numbers)
            if 0 in numbers:
                before.matrix = state.matrix
        return state

    def end(self, position: int) -> None:
        """A forward is done: the stream has come to `position`. Forget what no rollback can ask for any more."""
        self.position = position
        aligned = [index for index, call in enumerate(self.calls) if call.first % GRAIN == 0]
        if len(aligned) > 2:
            del self.calls[: aligned[-2]]
        for call in self.calls[:-RECENT]:
            if call.first % GRAIN:
                call.before = None

    def keep(self, length: int) -> None:
        """Forget the positions from `length` on. Raises EngineError where no state of that position is left."""
        if length >= self.position:
            return
        for layer in self.attention.values():
            for rows in layer.parts():
                rows.cut(length)
        if self.states:
            self._roll_back(length)
        self.position = length

    def _roll_back(self, length: int) -> None:
        start = next(
            (i for i in range(len(self.calls) - 1, -1, -1) if self.calls[i].first <= length and self.calls[i].before),
            None,
        )
        if start is None:
            raise EngineError(f"a rollback to position {length} reaches further back than recurrent states are kept")
        calls, self.calls = self.calls[start:], self.calls[:start]
        before = calls[0].before
        assert before is not None
        self.states.clear()
        self.states.update({layer: state.copy() for layer, state in before.items()})
        for call in calls:
            rows = min(call.rows, length - call.first)
            if rows <= 0:
                return
            if call.replays is None:
                raise EngineError(f"a rollback to position {length} falls into a part of a prompt, at {call.first}")
            again = self.begin(call.first, rows)
            again.before = {layer: state.copy() for layer, state in self.states.items()}
            for replay in call.replays:
                replay(rows)
            again.replays = call.replays


def copied(state: Tensor) -> Tensor:
    """A state that a library's module may write to, in place of one that is remembered."""
    return state.clone(memory_format=torch.contiguous_format)
