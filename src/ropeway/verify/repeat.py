"""Run prompts on a ring, then repeat its rounds on the whole model in one process, and compare.

The ring runs through the loop that serves. The whole model gets the same row batches and the ring's own tokens, so a
placement that promises bits must give them, and any other is measured on the same inputs (teacher-forced).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Items
from contextlib import closing
from dataclasses import dataclass

from ropeway.engines.base import Whole
from ropeway.launch.parts import part_size
from ropeway.launch.placement import Placement
from ropeway.launch.rank0 import Rank0
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.rounds import Scheduled
from ropeway.serving.sequence import Sequence
from ropeway.stage.work import Keep, Release, StageWork
from ropeway.verify.compare import Comparison
from ropeway.verify.record import Recorder as Recorder
from ropeway.verify.reference import Reference, load_reference


@dataclass(frozen=True, slots=True)
class Work:
    """What to run: `steps` greedy tokens behind each prompt, `groups` rounds under way, parts of `part` rows (0:
    measured); with `every_row` each row inside a prompt counts as a step too. End tokens do not end anything.
    """

    prompts: tuple[tuple[int, ...], ...]
    steps: int
    groups: int = 1
    part: int = 0
    every_row: bool = False

    def digest(self) -> str:
        """SHA-256 hex of the prompts' token ids."""
        digest = hashlib.sha256()
        for prompt in self.prompts:
            digest.update(len(prompt).to_bytes(4, "little"))
            digest.update(b"".join(token.to_bytes(4, "little") for token in prompt))
        return digest.hexdigest()


def record(rank0: Rank0, work: Work, drafting: Drafting | None = None) -> tuple[Recorder, list[list[int]]]:
    """Run it on the ring; what happened, and each sequence's tokens. Raises EngineError, RingLost."""
    recorder = Recorder()
    part = work.part or part_size(rank0, max(map(len, work.prompts)))
    loop = rank0.loop(recorder, groups=work.groups, part=part, on_round=recorder.on_round, drafting=drafting)
    sequences = [
        Sequence(number, tuple(prompt), work.steps, every_row=work.every_row)
        for number, prompt in enumerate(work.prompts)
    ]
    for sequence in sequences:
        loop.scheduler.add(sequence)
    while not loop.scheduler.idle:
        loop.step()
    return recorder, [list(sequence.produced) for sequence in sequences]


def repeat(whole: Whole, recorder: Recorder) -> Comparison:
    """Run the recorded rounds on the whole model; every row that was kept is a step. Raises EngineError.

    Where the last rank chose the tokens there are no logits to compare, so the tokens are.
    """
    comparison = Comparison()
    for scheduled, work in recorder.rounds:
        _repeat_round(whole, recorder, comparison, scheduled, work)
    return comparison


def _repeat_round(
    whole: Whole, recorder: Recorder, comparison: Comparison, scheduled: Scheduled, work: StageWork
) -> None:
    for operation in work.before:
        match operation:
            case Keep(slot, length):
                whole.keep(slot, length)
            case Release(slot):
                whole.release(slot)
            case _:
                raise AssertionError("a comparison uses no prompt cache")
    kept = [(wanted, dict(recorder.kept(wanted))) for wanted in scheduled.wanted]
    at = 0
    for part in work.parts:
        tokens = scheduled.tokens[part.start : part.start + part.rows]
        logits = whole.forward(part.spans, tokens, part.returns)
        stop = at + len(part.returns)
        for wanted, rows in kept:
            number = wanted.sequence.id
            for row in range(max(at, wanted.row), min(stop, wanted.row + wanted.rows)):
                theirs = logits[row - at]
                if (ours := rows.get(row - wanted.row)) is not None:
                    comparison.add(recorder.row(ours), theirs, sequence=number, produced=ours.produced)
                elif not recorder.rows and wanted.sample and row == wanted.row + wanted.rows - 1:
                    produced = wanted.position + wanted.rows - len(wanted.sequence.prompt)
                    token = wanted.sequence.produced[produced]
                    comparison.add_token(token, int(theirs.argmax()), sequence=number, produced=produced)
        at = stop


def compare_with_whole(placement: Placement, recorder: Recorder, reference: Reference | None = None) -> Comparison:
    """Load the whole model in this process and repeat the rounds on it. Raises EngineError."""
    with closing(load_reference(placement, reference)) as whole:
        return repeat(whole, recorder)


def check(
    rank0: Rank0, prompts: Items[Items[int]], steps: int, *, groups: int = 1, drafting: Drafting | None = None
) -> Comparison:
    """Run prompts on the ring and compare every step with the whole model. Raises EngineError, RingLost."""
    work = Work(tuple(tuple(prompt) for prompt in prompts), steps, groups)
    recorder, _ = record(rank0, work, drafting)
    with closing(recorder):
        return compare_with_whole(rank0.placement, recorder)
