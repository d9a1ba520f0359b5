"""Rings whose stages keep time: what they take is never less than they are given, alone and over a hop."""

from __future__ import annotations

import pytest

from ropeway.launch.hops import clockwork
from ropeway.placement.facts import Cost, Costs
from ropeway.serving.sequence import Sequence

COSTS = Costs(Cost(2.0), Cost(1.0, 0.5))


@pytest.mark.parametrize("stages", [1, 2])
def test_stages_take_what_they_are_given(stages: int) -> None:
    with clockwork([COSTS] * stages, 64, chunk=4) as loop:
        sequence = Sequence(0, (1,) * 8, 3)
        loop.scheduler.add(sequence)
        while not loop.scheduler.idle:
            loop.step()
        assert len(sequence.produced) == 3
        prompt, *rest = loop.records
        decodes = [record for record in rest if record.rows]
        # 8 rows in 2 parts of 1 + 4 x 0.5 ms, then a row a token, each 2 ms
        assert (prompt.rows, prompt.parts) == (8, 2)
        assert prompt.own_ns >= 2 * 3e6
        assert len(decodes) == 2
        assert all(record.own_ns >= 2e6 for record in decodes)
