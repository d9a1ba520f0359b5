"""How many rows a prompt's parts should have, from measured times. Pure: the standard library alone.

A prompt of n parts takes the sum of all stages' and links' times a part, and n - 1 times the slowest of them
(design: "Parts"). Small parts fill the ring sooner, large ones pay a stage's fixed cost less often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SIZES: Final = (64, 128, 256, 512, 1024, 2048, 4096)
"""What may be chosen. Powers of two, so that small differences between two measurements rarely change the choice."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a part costs a stage or a link: `fixed_ms`, and `row_ms` for each row."""

    fixed_ms: float
    row_ms: float

    def part_ms(self, rows: int) -> float:
        """Milliseconds for a part of so many rows."""
        return self.fixed_ms + rows * self.row_ms

    @classmethod
    def through(cls, few: tuple[int, float], many: tuple[int, float]) -> Cost:
        """The line through two measurements (rows, ms); never falls, never begins below 0."""
        row_ms = max(0.0, (many[1] - few[1]) / (many[0] - few[0]))
        return cls(max(0.0, few[1] - few[0] * row_ms), row_ms)


def prompt_ms(rows: int, part: int, steps: Sequence[Cost]) -> float:
    """Milliseconds until a prompt's last row is out of the last step, parts overlapping; steps are stages and links."""
    full, rest = divmod(rows, part)
    sizes = [part] * full + [rest] * (rest > 0)
    free_at = [0.0] * len(steps)
    done = 0.0
    for size in sizes:
        done = 0.0
        for index, step in enumerate(steps):
            done = free_at[index] = max(done, free_at[index]) + step.part_ms(size)
    return done


def best_part(rows: int, most: int, steps: Sequence[Cost]) -> int:
    """The size, at most `most`, that gets a prompt of `rows` rows through soonest; the largest among equals."""
    sizes = [size for size in SIZES if size <= most] or [most]
    return min(reversed(sizes), key=lambda size: prompt_ms(rows, size, steps))
