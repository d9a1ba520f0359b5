"""Record what a ring does for some sequences, then repeat it on the whole model in one process and compare.

The ring runs through the loop that serves. The whole model gets the same row batches, so a placement that promises
bits must give them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Items

import numpy as np

from ropeway.engines.base import Logits, Whole
from ropeway.launch.parts import part_size
from ropeway.launch.placement import Placement
from ropeway.launch.rank0 import Rank0
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.rounds import Scheduled, Wanted
from ropeway.serving.sequence import Sequence
from ropeway.stage.work import Keep, Release, StageWork
from ropeway.verify.compare import Comparison


class Recorder:
    """A greedy chooser that keeps every round, and every row of logits that chose a token. Drafts are verified."""

    def __init__(self) -> None:
        self.rounds: list[tuple[Scheduled, StageWork]] = []
        self.logits: dict[int, list[Logits]] = defaultdict(list)
        """By sequence, for each of its rounds that chose tokens, a row a token."""

    def on_round(self, scheduled: Scheduled, work: StageWork) -> None:
        """Keep a round."""
        self.rounds.append((scheduled, work))

    def choose(self, wanted: Wanted, logits: Logits) -> Items[int]:
        """The likeliest tokens, as far as the drafts are right; keep the rows that chose them."""
        chosen: list[int] = []
        for row, draft in zip(logits, (*wanted.drafts, None), strict=True):
            chosen.append(int(row.argmax()))
            if chosen[-1] != draft:
                break
        self.logits[wanted.sequence.id].append(logits[: len(chosen)].copy())
        return chosen

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        """Nobody asked for the prompt's rows; what they leave in the state shows in every later step."""


def repeat(whole: Whole, recorder: Recorder) -> Comparison:
    """Run the recorded rounds on the whole model; every chosen token is a step. Raises EngineError.

    Where the last rank chose the tokens there are no logits to compare, so the tokens are.
    """
    comparison = Comparison()
    taken: dict[int, int] = defaultdict(int)
    for scheduled, work in recorder.rounds:
        expected = _round(whole, scheduled, work)
        for wanted in scheduled.wanted:
            if not wanted.sample:
                continue
            number = wanted.sequence.id
            step, taken[number] = taken[number], taken[number] + 1
            if number in recorder.logits:
                rows = recorder.logits[number][step]
                for ours, theirs in zip(rows, expected[number][: len(rows)], strict=True):
                    comparison.add(ours, theirs)
            else:
                comparison.add_token(wanted.sequence.produced[step], int(expected[number][0].argmax()))
    return comparison


def _round(whole: Whole, scheduled: Scheduled, work: StageWork) -> dict[int, Logits]:
    """The whole model's logits of each sequence's last wanted row, and of those that its drafts are judged by."""
    for operation in work.before:
        match operation:
            case Keep(slot, length):
                whole.keep(slot, length)
            case Release(slot):
                whole.release(slot)
            case _:
                raise AssertionError("a comparison uses no prompt cache")
    found: dict[int, list[Logits]] = defaultdict(list)
    at = 0
    for part in work.parts:
        tokens = scheduled.tokens[part.start : part.start + part.rows]
        logits = whole.forward(part.spans, tokens, part.returns)
        stop = at + len(part.returns)
        for wanted in scheduled.wanted:
            last = wanted.row + wanted.rows
            first = max(at, last - 1 - len(wanted.drafts))
            if first < min(last, stop):
                found[wanted.sequence.id].append(logits[first - at : last - at])
        at = stop
    return {number: np.concatenate(rows) for number, rows in found.items()}


def compare_with_whole(placement: Placement, recorder: Recorder) -> Comparison:
    """Load the whole model in this process and repeat the rounds on it. Raises EngineError."""
    whole = placement.load_whole()
    try:
        return repeat(whole, recorder)
    finally:
        whole.close()


def check(
    rank0: Rank0, prompts: Items[Items[int]], steps: int, *, groups: int = 1, drafting: Drafting | None = None
) -> Comparison:
    """Read the prompts and decode `steps` tokens for each on the ring, then compare every step with the whole model.

    End tokens do not end anything here. Raises EngineError, RingLost.
    """
    recorder = Recorder()
    part = part_size(rank0, max(map(len, prompts)))
    loop = rank0.loop(recorder, groups=groups, part=part, on_round=recorder.on_round, drafting=drafting)
    for number, prompt in enumerate(prompts):
        loop.scheduler.add(Sequence(number, tuple(prompt), steps))
    while not loop.scheduler.idle:
        loop.step()
    return compare_with_whole(rank0.placement, recorder)
