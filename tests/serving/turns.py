"""A scheduler taken round by round, with token 7 for everyone."""

from __future__ import annotations

from ropeway.serving.rounds import Scheduled
from ropeway.serving.scheduler import Scheduler
from ropeway.serving.sequence import Sequence
from ropeway.wire import Op


def scheduler(
    parallel: int = 4, chunk: int = 8, max_rows: int = 40, context: int = 64, kv_rows: int = 256, groups: int = 1
) -> Scheduler:
    return Scheduler(parallel, chunk, max_rows, context, kv_rows, groups=groups)


def ask(number: int, size: int, max_tokens: int = 10) -> Sequence:
    return Sequence(number, tuple(range(size)), max_tokens)


def planned(one: Scheduler) -> Scheduled:
    scheduled = one.next_plan()
    assert scheduled is not None
    return scheduled


def turn(one: Scheduler) -> Scheduled:
    """A round, and token 7 for everyone who waits for one."""
    scheduled = planned(one)
    one.commit(scheduled, {wanted.sequence.id: [7] for wanted in scheduled.wanted})
    return scheduled


def rows_of(scheduled: Scheduled) -> dict[int, tuple[Op, int, int]]:
    return {entry.stream: (entry.op, entry.first, entry.rows) for entry in scheduled.plan.entries}
