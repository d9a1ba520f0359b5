"""Rank 0's scheduling and drafting against a ring that is a formula: given replies, a simulated clock, no engine."""

from __future__ import annotations

import random
from collections.abc import Sequence as Items
from dataclasses import dataclass

from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.drafting.ngram import NgramDrafter
from ropeway.serving.rounds import Scheduled
from ropeway.serving.scheduler import Scheduler, no_drafts
from ropeway.serving.sequence import Sequence
from ropeway.serving.underway import RoundRecord

Text = tuple[list[int], list[int]]
"""A prompt and the reply to it."""


class Clock:
    """Simulated seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Line:
    """A ring whose round of `rows` rows takes `base_s + row_s * rows`, give or take `noise` of it."""

    base_s: float
    row_s: float
    noise: float = 0.0


LONE_CPU = Line(0.006, 0.0085)
FAR = Line(0.058, 0.0085)
"""Two stages on a CPU each, 25 ms one way."""
CARDS = Line(0.02, 0.0002)
"""Graphics cards, a few milliseconds apart."""


class Replay:
    """One ring, with a drafter or (`drafting` None) without."""

    def __init__(self, line: Line, drafting: Drafting | None, clock: Clock, parallel: int = 1) -> None:
        self.clock = clock
        self.drafting = drafting
        self.turns: list[tuple[int, int]] = []
        """Guesses verified and guesses right, for each turn of a sequence."""
        self._line = line
        self._rng = random.Random(5)
        self._replies: dict[int, list[int]] = {}
        self._scheduler = Scheduler(
            parallel,
            128,
            4096,
            4096,
            4096 * parallel,
            propose=no_drafts if drafting is None else drafting.propose,
        )

    @classmethod
    def plain(cls, line: Line, parallel: int = 1) -> Replay:
        return cls(line, None, Clock(), parallel)

    @classmethod
    def ngram(cls, line: Line, parallel: int = 1) -> Replay:
        clock = Clock()
        return cls(line, Drafting(NgramDrafter(), clock), clock, parallel)

    def run(self, texts: Items[Text]) -> float:
        """Give the replies, together as far as there are slots; tokens a second, the prompts' rounds left out."""
        seconds = 0.0
        for prompt, reply in texts:
            number = len(self._replies)
            self._replies[number] = reply
            self._scheduler.add(Sequence(number, tuple(prompt), len(reply)))
        while (scheduled := self._scheduler.next_plan()) is not None:
            took = self._round(scheduled)
            if scheduled.wanted and all(wanted.position >= len(wanted.sequence.prompt) for wanted in scheduled.wanted):
                seconds += took
        return sum(len(reply) - 1 for _, reply in texts) / seconds

    def _round(self, scheduled: Scheduled) -> float:
        line, drafting = self._line, self.drafting
        started = self.clock.now
        took = (line.base_s + line.row_s * len(scheduled.tokens)) * self._rng.lognormvariate(0, line.noise)
        if drafting is not None:
            drafting.waiting(scheduled)
        self.clock.now = max(self.clock.now, started + took)
        chosen: dict[int, list[int]] = {}
        for wanted in scheduled.wanted:
            if wanted.sample:
                chosen[wanted.sequence.id] = self._verify(wanted.sequence, wanted.drafts)
        committed = self._scheduler.commit(scheduled, chosen)
        if drafting is not None:
            record = RoundRecord(0, len(scheduled.tokens), len(scheduled.plan.part_ranges()), round(started * 1e9))
            record.sent_ns = round(record.launched_ns + 0.4 * took * 1e9)
            record.landed_ns = round(self.clock.now * 1e9)
            record.wait_rows_ns = round(0.8 * line.base_s * 1e9)
            drafting.landed(scheduled, committed, record)
        return self.clock.now - started

    def _verify(self, sequence: Sequence, drafts: tuple[int, ...]) -> list[int]:
        reply, at = self._replies[sequence.id], len(sequence.produced)
        right = 0
        while right < len(drafts) and drafts[right] == reply[at + right]:
            right += 1
        self.turns.append((len(drafts), right))
        return reply[at : at + right + 1]


def prose(size: int, seed: int, words: int = 400) -> list[int]:
    """Tokens that come together again by chance alone, some far more often than others."""
    rng = random.Random(seed)
    weights = [1 / (rank + 2) for rank in range(words)]
    return rng.choices(range(words), weights, k=size)


def repeated(size: int, seed: int) -> Text:
    """A text, and the text again."""
    text = prose(size, seed)
    return text, list(text)


def edited(size: int, seed: int, every: int = 14) -> Text:
    """A text, and the text with a token changed, left out or put in about once in `every`."""
    rng = random.Random(seed)
    text = prose(size, seed)
    reply: list[int] = []
    for token in text:
        what = rng.random() * every
        reply += [] if what < 0.3 else [1000 + rng.randrange(50)] if what < 0.7 else [token]
        if what > every - 0.3:
            reply.append(1000 + rng.randrange(50))
    return text, reply
