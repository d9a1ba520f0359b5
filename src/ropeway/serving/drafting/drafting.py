"""Between the drafter, the window and the loop: proposals for the scheduler's turns, and what became of them.

Times are measured here or come from the loop; the window and the drafters see them as arguments alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Final

from ropeway.engines.base import EngineError
from ropeway.serving.drafting.cost import CostLine
from ropeway.serving.drafting.drafter import Drafter, RowReader
from ropeway.serving.drafting.overlap import best_cut
from ropeway.serving.drafting.window import FADE, Window
from ropeway.serving.rounds import Scheduled
from ropeway.serving.scheduler import Committed
from ropeway.serving.sequence import Sequence
from ropeway.serving.underway import RoundRecord

AHEAD_SHARE: Final = 0.6
"""Of the time that rank 0 is used to wait for rows, how much it may spend on guesses beforehand."""

ANYWAY: Final = 16
"""One sequence of so many is read where drafting has not paid on this ring, to find out whether it does now."""

_log = logging.getLogger("ropeway.drafting")


@dataclass(slots=True)
class DraftFigures:
    """What drafting has done: turns of sequences, those with guesses, guesses verified, guesses that were right."""

    turns: int = 0
    drafted: int = 0
    guesses: int = 0
    right: int = 0


@dataclass(slots=True)
class _Turn:
    """A sequence's share in the round that it waits for: the guesses' grades, and the drafter's time in seconds."""

    grades: list[int] = field(default_factory=list)
    seconds: float = 0.0


class Drafting:
    """Drafting for one ring's loop, of so many stages; the loop's thread calls it. `clock` gives seconds.

    With `batch` a stream's guesses are verified together even where their rows have other bits then than alone.
    """

    def __init__(
        self,
        drafter: Drafter,
        clock: Callable[[], float] = time.perf_counter,
        *,
        stages: int = 1,
        batch: bool = False,
    ) -> None:
        self.batch = batch
        self.window = Window(drafter.priors)
        self.figures = DraftFigures()
        self._stages = stages
        self._drafter = drafter
        self._reader = drafter if isinstance(drafter, RowReader) else None
        self._clock = clock
        self._sequences: dict[int, Sequence] = {}
        self._turns: dict[int, _Turn] = {}
        self._reading = CostLine()
        self._stage = CostLine()
        self._ahead_s = 0.0
        self._wait_s = 0.0
        self._broken = False

    def propose(self, sequence: Sequence, limit: int) -> Items[int]:
        """At most `limit` guesses that are worth their rows. The scheduler's `Propose`."""
        self._sequences[sequence.id] = sequence
        self._turns[sequence.id] = _Turn()
        try:
            return () if self._broken else self._propose(sequence, limit)
        except EngineError as error:
            self._break(error)
            return ()

    @property
    def needs_rows(self) -> bool:
        """Every row of the last layer must come back to rank 0."""
        return self._reader is not None

    def take_rows(self, sequence: Sequence, position: int, rows: memoryview, count: int) -> None:
        """Rows of the last layer have come back."""
        if self._reader is not None and not self._broken:
            self._reader.take_rows(sequence, position, rows, count)

    def waiting(self, scheduled: Scheduled) -> None:
        """Rank 0 has nothing to do until a round is back: read its prompts, and guess ahead for those with guesses."""
        try:
            if not self._broken:
                self._wait(scheduled)
        except EngineError as error:
            self._break(error)

    def cut(self, rows: int, streams: int) -> tuple[int, ...]:
        """The parts for a stream's `rows` rows in a verify round. The scheduler's `Cut`."""
        return best_cut(rows, self._stages, self._stage) if streams == 1 else (rows,)

    def landed(self, scheduled: Scheduled, committed: Items[Committed], record: RoundRecord) -> None:
        """A round has landed."""
        decodes = [wanted for wanted in scheduled.wanted if wanted.position >= len(wanted.sequence.prompt)]
        if decodes and sum(wanted.rows for wanted in decodes) == record.rows:
            self.window.landed(record.rows, (record.landed_ns - record.launched_ns) / 1e9, len(decodes))
            self._wait_s = _mean(self._wait_s, record.wait_rows_ns / 1e9)
            # Rank 0 stands for all stages: placements even them out. Sending a part is among what it costs.
            busy_ns = record.sent_ns - record.launched_ns - record.wait_send_ns + record.head_ns
            self._stage.observe(record.rows / record.parts, busy_ns / 1e9 / record.parts)
        tokens = {one.sequence.id: one.tokens for one in committed}
        for wanted in decodes:
            turn = self._turns.pop(wanted.sequence.id, _Turn())
            if wanted.sequence.id in tokens:
                right = _shared(wanted.drafts, tokens[wanted.sequence.id])
                self._verified(wanted.sequence.id, turn, len(wanted.drafts), right)
        for sequence in [one for one in self._sequences.values() if one.finish is not None]:
            del self._sequences[sequence.id]
            self._turns.pop(sequence.id, None)
            self.window.forget(sequence.id)
            self._drafter.forget(sequence.id)

    def close(self) -> None:
        """Free what the drafter holds."""
        self._drafter.close()

    def _propose(self, sequence: Sequence, limit: int) -> Items[int]:
        if not self._may_read(sequence):
            return ()
        behind = self._drafter.behind(sequence)
        choice = self.window.choice(sequence.id, self._reading.at(behind) if behind else 0.0)
        if choice is None or not choice.open:
            return ()
        started = self._clock()
        self._read(sequence, behind)
        begun = self._clock()
        guesses = self._drafter.propose(sequence)
        tokens: list[int] = []
        while len(tokens) < limit and choice.open:
            guess = next(guesses, None)
            if guess is None or not choice.take(guess.grade):
                break
            tokens.append(guess.token)
        ended = self._clock()
        if tokens:
            self.window.guess_s = _mean(self.window.guess_s, (ended - begun) / len(tokens))
        self._turns[sequence.id] = _Turn(choice.grades, ended - started)
        return tokens

    def _wait(self, scheduled: Scheduled) -> None:
        until = self._clock() + AHEAD_SHARE * self._wait_s
        busy: list[Sequence] = []
        for wanted in scheduled.wanted:
            sequence = wanted.sequence
            if not wanted.sample or sequence.finish is not None:
                continue
            self._sequences[sequence.id] = sequence
            if not sequence.produced:
                self._may_read(sequence)
            elif wanted.drafts:
                busy.append(sequence)
        while busy and (now := self._clock()) + self._ahead_s < until:
            if self._drafter.ahead(busy[0]):
                busy.append(busy[0])
                self._ahead_s = _mean(self._ahead_s, self._clock() - now)
            del busy[0]

    def _verified(self, sequence_id: int, turn: _Turn, guesses: int, right: int) -> None:
        figures = self.figures
        figures.turns += 1
        figures.drafted += guesses > 0
        figures.guesses += guesses
        figures.right += right
        self.window.verified(sequence_id, turn.grades[:guesses], right, turn.seconds)

    def _may_read(self, sequence: Sequence) -> bool:
        """Whether the drafter knows the sequence's prompt; it is read here where that seems worth it.

        Reading a prompt is charged to no account: nothing can be gained before it.
        """
        behind = self._drafter.behind(sequence)
        if behind <= len(sequence.produced):
            return True
        if not self.window.hopeful and sequence.id % ANYWAY:
            return False
        self._read(sequence, behind)
        return True

    def _read(self, sequence: Sequence, behind: int) -> None:
        if behind:
            started = self._clock()
            self._drafter.observe(sequence)
            self._reading.observe(behind, self._clock() - started)

    def _break(self, error: EngineError) -> None:
        """A drafter that cannot go on costs its guesses and nothing else."""
        self._broken = True
        _log.warning("drafting has ended: %s", error)


def _mean(mean: float, value: float) -> float:
    """The running mean with one more value; 0.0 where there was none."""
    return FADE * mean + (1 - FADE) * value if mean else value


def _shared(guesses: Items[int], tokens: Items[int]) -> int:
    """How many of the guesses came true."""
    count = 0
    for guess, token in zip(guesses, tokens, strict=False):
        if guess != token:
            break
        count += 1
    return count
