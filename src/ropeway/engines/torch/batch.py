"""The rows of one forward: whose they are, where they stand, and the masks that their attention needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ropeway.engines.base import Span
from ropeway.engines.torch.slot import GRAIN, Call, Slot


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows of one stream: `rows` rows at `start` in the batch, at position `first` of `slot`.

    `call` is there where recurrent layers see these rows in one go.
    """

    slot: Slot
    start: int
    first: int
    rows: int
    call: Call | None = None

    @property
    def stop(self) -> int:
        """Where its rows end in the batch."""
        return self.start + self.rows

    @property
    def end(self) -> int:
        """The position behind its last row."""
        return self.first + self.rows


@dataclass(slots=True)
class Batch:
    """`spans` as they came, and the same for recurrent layers, cut where one crosses a multiple of `GRAIN`.

    `positions` and `tokens` are [1, rows]. `recorded`: the forward is being recorded (recorded.py).
    """

    spans: tuple[Stretch, ...]
    calls: tuple[Stretch, ...]
    positions: Tensor
    tokens: Tensor | None
    recorded: bool = False
    masks: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)

    def mask(self, stretch: Stretch, begin: int, window: int | None) -> Tensor:
        """Who of the positions `begin`.. each row may see, [1, 1, rows, end - begin], as transformers makes it."""
        key = (stretch.start, begin, window or 0)
        mask = self.masks.get(key)
        if mask is None:
            device = self.positions.device
            rows = torch.arange(stretch.first, stretch.end, device=device)[:, None]
            columns = torch.arange(begin, stretch.end, device=device)[None, :]
            seen = columns <= rows
            if window is not None:
                seen = seen & (columns > rows - window)
            mask = self.masks[key] = seen[None, None]
        return mask


def make_batch(
    spans: Sequence[Span],
    slots: Sequence[Slot],
    tokens: Sequence[int],
    device: torch.device,
    *,
    recurrent: bool,
    invariant: bool = False,
) -> Batch:
    """The batch of a forward over `spans`; every slot learns of the calls that its recurrent layers will see."""
    stretches: list[Stretch] = []
    calls: list[Stretch] = []
    at = 0
    for span in spans:
        slot = slots[span.slot]
        stretches.append(Stretch(slot, at, span.first, span.rows))
        if recurrent:
            calls += _calls(stretches[-1], invariant=invariant)
        at += span.rows
    positions = torch.cat([torch.arange(s.first, s.end, device=device) for s in stretches])[None]
    ids = torch.tensor([list(tokens)], dtype=torch.long, device=device) if tokens else None
    return Batch(tuple(stretches), tuple(calls), positions, ids)


def _calls(stretch: Stretch, *, invariant: bool) -> list[Stretch]:
    """The calls of a stretch: what is left to the next multiple of GRAIN by itself, then the rest.

    Together with prompts that are cut at such multiples, every one that a stream passes is the beginning of a call,
    where its state is remembered.
    """
    calls = []
    first, start = stretch.first, stretch.start
    while start < stretch.stop:
        rows = stretch.stop - start
        if first % GRAIN:
            rows = min(rows, GRAIN - first % GRAIN)
        elif invariant and rows > GRAIN:
            rows -= rows % GRAIN
        calls.append(Stretch(stretch.slot, start, first, rows, stretch.slot.begin(first, rows)))
        first, start = first + rows, start + rows
    return calls


def blocks(stretch: Stretch) -> list[Stretch]:
    """Rows of a stretch by whole chunks of `GRAIN` positions; what is less than a chunk row by row.

    So a prompt's rows attend in the same blocks whatever its parts are, as long as those are cut at multiples of GRAIN,
    and rows of a verify round as they would one round after another.
    """
    found: list[Stretch] = []
    at = 0
    while at < stretch.rows:
        first = stretch.first + at
        rows = GRAIN if first % GRAIN == 0 and stretch.rows - at >= GRAIN else 1
        found.append(replace(stretch, start=stretch.start + at, first=first, rows=rows))
        at += rows
    return found
