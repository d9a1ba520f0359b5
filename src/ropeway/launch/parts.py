"""The size of a prompt's parts for one ring, from what its stages and links just took; or what the operator said."""

from __future__ import annotations

import time
from typing import Final

from ropeway.launch.rank0 import Rank0
from ropeway.serving.loop import Loop, RoundRecord
from ropeway.serving.part_size import Cost, best_part
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser

TYPICAL_PROMPT: Final = 2048
"""Rows of the prompt that the size is chosen for, where the context holds as many."""
MANY: Final = 64
TRIES: Final = 2
SHORT: Final = 128
"""A prompt of so few rows is not worth measuring for."""
_DONE_WAIT_S: Final = 5.0


def part_size(rank0: Rank0, longest: int) -> int:
    """Rows a part: `--part` where it was given, else measured, for prompts of at most `longest` rows.

    Raises RingLost, EngineError.
    """
    limits, wanted = rank0.limits, rank0.placement.options.part
    if wanted:
        return min(wanted, limits.chunk)
    if longest <= SHORT or rank0.ring is None or limits.context <= MANY + 1:
        return limits.chunk
    return best_part(min(longest, TYPICAL_PROMPT), limits.chunk, measure(rank0))


def measure(rank0: Rank0) -> list[Cost]:
    """What a part costs each stage and each link, in the order in which a row meets them."""
    loop = rank0.loop(PlainChooser())
    few = [_round(rank0, loop, number, 1) for number in range(TRIES)]
    many = [_round(rank0, loop, TRIES + number, MANY) for number in range(TRIES)]
    world = rank0.placement.layout.world
    steps: list[Cost] = []
    for rank in range(world):
        if rank:
            steps.append(Cost.through((1, _hop_ms(few, world)), (MANY, _hop_ms(many, world))))
        steps.append(Cost.through((1, _forward_ms(few, rank)), (MANY, _forward_ms(many, rank))))
    return steps


def _round(rank0: Rank0, loop: Loop, number: int, rows: int) -> RoundRecord:
    """Read a prompt of `rows` rows in one round; its record, with every stage's report."""
    loop.scheduler.add(Sequence(number, tuple(5 + i % 250 for i in range(rows)), 1))
    loop.step()
    record = loop.records[-1]
    while not loop.scheduler.idle:
        loop.step()
    deadline = time.monotonic() + _DONE_WAIT_S
    while len(record.dones) < rank0.placement.layout.world - 1 and time.monotonic() < deadline:
        loop.collect()
        time.sleep(0.001)
    return record


def _forward_ms(records: list[RoundRecord], rank: int) -> float:
    """The quickest of the tries: what disturbs a measurement only makes it longer."""
    if rank == 0:
        return min(record.own_ns for record in records) / 1e6
    return min((record.dones[rank].forward_ns for record in records if rank in record.dones), default=0) / 1e6


def _hop_ms(records: list[RoundRecord], world: int) -> float:
    """The wire's share of a hop between two stages."""
    return min((wire for record in records if (wire := record.wire_ns(world)) is not None), default=0) / (world * 1e6)
