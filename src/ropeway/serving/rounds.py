"""One round as rank 0 sees it: the plan for the stages, the token ids to embed, and whose rows come back.

Pure: the standard library alone. Decides nothing about who takes part; scheduler.py has done so.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass

from ropeway.serving.sequence import Sequence
from ropeway.wire import CacheOp, Plan, Returns, StreamEntry


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows of one sequence that come back: `row`..`row + rows` of the rows that return, in their order.

    `position` is the stream position of the first of them. With `sample` the last ones choose tokens: one row for a
    prompt, 1 + len(drafts) for a decode; without it the prompt goes on and the rows serve log-probabilities alone.
    """

    sequence: Sequence
    row: int
    rows: int
    position: int
    sample: bool
    drafts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A round to run: `tokens` has one id a row, `wanted` says who gets which of the rows that return."""

    plan: Plan
    tokens: tuple[int, ...]
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one sequence does in a round; `pieces` are rows that stay in one part each, in order.

    `returns` counts the last rows that come back. Prompts and decodes are never in one part.
    """

    sequence: Sequence
    entry: StreamEntry
    tokens: tuple[int, ...]
    pieces: tuple[int, ...]
    returns: int
    prompt: bool
    sample: bool
    drafts: tuple[int, ...] = ()


def build(
    turns: Iterable[Turn], leaving: Iterable[StreamEntry], cache: Items[CacheOp], chunk: int, *, send_tokens: bool
) -> Scheduled:
    """The round of these turns, with parts of at most `chunk` rows."""
    ordered = sorted(turns, key=lambda turn: turn.entry.stream)
    counts = {turn.entry.stream: turn.returns for turn in ordered}
    entries = sorted([*(turn.entry for turn in ordered), *leaving], key=lambda entry: entry.stream)
    tokens = tuple(token for turn in ordered for token in turn.tokens)
    wanted: list[Wanted] = []
    row = 0
    for turn in ordered:
        if turn.returns:
            position = turn.entry.first + turn.entry.rows - turn.returns
            wanted.append(Wanted(turn.sequence, row, turn.returns, position, turn.sample, turn.drafts))
            row += turn.returns
    listed = tuple(counts.get(entry.stream, 0) for entry in entries)
    returns = Returns.LISTED
    if all(count == min(entry.rows, 1) for count, entry in zip(listed, entries, strict=True)):
        returns = Returns.LAST
    elif all(count == entry.rows for count, entry in zip(listed, entries, strict=True)):
        returns = Returns.ALL
    plan = Plan(
        tuple(entries),
        tuple(_cuts(ordered, chunk)),
        tokens if send_tokens else (),
        tuple(cache),
        returns,
        listed if returns is Returns.LISTED else (),
    )
    return Scheduled(plan, tokens, tuple(wanted))


def _cuts(turns: Items[Turn], chunk: int) -> list[int]:
    """Where parts begin: as few as the pieces allow, whole pieces, a sequence once in each."""
    cuts: list[int] = []
    at = size = 0
    prompt = False
    for turn in turns:
        for index, rows in enumerate(turn.pieces):
            if size and (index or turn.prompt is not prompt or size + rows > chunk):
                cuts.append(at)
                size = 0
            prompt = turn.prompt
            size += rows
            at += rows
    return cuts
