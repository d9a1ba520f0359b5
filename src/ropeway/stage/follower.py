"""The loop of every rank but 0: take the next plan, run its parts as their rows come, pass them on, say done."""

from __future__ import annotations

from ropeway.stage.stage import Stage
from ropeway.stage.work import StageWork
from ropeway.transport import Ring
from ropeway.types import Layout, SamplerAt
from ropeway.wire import Done, Plan, Returns, Token, Tokens


def follow(ring: Ring, stage: Stage, layout: Layout, rank: int, end_tokens: frozenset[int] = frozenset()) -> None:
    """Follow rank 0 until the ring ends: RingStopped or RingLost is raised out of it.

    `end_tokens` mark a token as the end of its stream where the last rank chooses tokens.
    """
    waits = ring.waits
    while True:
        number, plan = ring.next_plan()
        rows_ns, send_ns = waits.rows_ns, waits.send_ns
        work = stage.begin(plan)
        if rank < layout.world - 1 or (layout.sampler is SamplerAt.FIRST and plan.returns is Returns.ALL):
            _pass_on(ring, stage, number, work)
        elif layout.sampler is SamplerAt.FIRST:
            _return_rows(ring, stage, number, plan, work)
        else:
            _return_tokens(ring, stage, number, plan, work, end_tokens)
        acks = stage.finish(work)
        ring.done(number, Done(rank, acks, waits.rows_ns - rows_ns, stage.forward_ns, waits.send_ns - send_ns))


def _pass_on(ring: Ring, stage: Stage, number: int, work: StageWork) -> None:
    """Every row goes to the next rank, part by part: one part is computed while the one before it crosses."""
    for index, part in enumerate(work.parts):
        rows = ring.receive_rows(number, index)
        out = ring.send_buffer(part.rows * stage.row_bytes)
        stage.forward(part, rows, out)
        ring.release_rows()
        ring.send_rows(number, index, part.rows, out)


def _return_rows(ring: Ring, stage: Stage, number: int, plan: Plan, work: StageWork) -> None:
    """Only the wanted rows go back to rank 0, in one frame behind the last part."""
    size = stage.row_bytes
    count = plan.returned_count
    out = ring.send_buffer(count * size) if count else memoryview(bytearray())
    at = 0
    for index, part in enumerate(work.parts):
        rows = ring.receive_rows(number, index)
        stop = at + len(part.returns) * size
        stage.forward(part, rows, out[at:stop], part.returns)
        ring.release_rows()
        at = stop
    if count:
        ring.send_rows(number, 0, count, out)


def _return_tokens(
    ring: Ring, stage: Stage, number: int, plan: Plan, work: StageWork, end_tokens: frozenset[int]
) -> None:
    """The likeliest token of each stream that returns a row goes back to rank 0, the lowest id on ties."""
    chosen: list[int] = []
    for index, part in enumerate(work.parts):
        rows = ring.receive_rows(number, index)
        logits = stage.forward_head(part, rows)
        ring.release_rows()
        chosen += [int(row.argmax()) for row in logits]
    tokens = []
    taken = 0
    for index, entry in enumerate(plan.entries):
        count = plan.returns_for(index)
        if count:
            taken += count
            token = chosen[taken - 1]
            tokens.append(Token(entry.stream, token, entry.first + entry.rows, token in end_tokens))
    if tokens:
        ring.send_tokens(number, Tokens(tuple(tokens)))
