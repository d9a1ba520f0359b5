"""A stage's end of the control star: how long it waits to hear from rank 0."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

from ropeway.transport.connection import Connection
from ropeway.transport.life import Life
from ropeway.transport.spoke import Spoke
from ropeway.wire import SILENCE_S, Fate, Ready
from ropeway.wire.link import Buffers


class Deaf:
    """A connection that takes everything and says nothing."""

    link = None

    def send(self, _: Callable[[], Buffers]) -> bool:
        return True


def test_nobody_speaks_while_a_stage_loads_and_that_is_no_silence() -> None:
    """However long the load took: the 6 s begin when the stage is ready."""
    told: list[Fate] = []
    spoke = Spoke(Life(1, ("a:1", "b:2"), told.append), cast(Connection, Deaf()), lambda _, __: None, lambda: None)
    before = time.monotonic()
    long_ago = before - 10 * SILENCE_S
    spoke.tick(before, long_ago)
    spoke.ready(Ready(1, 60_000, 0, 0))
    ready = time.monotonic()
    spoke.tick(ready, long_ago)
    spoke.tick(before + SILENCE_S - 0.5, long_ago)
    assert told == []
    spoke.tick(ready + SILENCE_S + 5, ready + 5.5)
    assert told == []
    spoke.tick(ready + SILENCE_S + 6, ready + 5.5)
    assert [fate.text.split(".")[0] for fate in told] == ["rank 0 (a:1) has said nothing for 6 s"]
