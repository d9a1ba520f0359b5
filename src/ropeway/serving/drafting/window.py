"""How many guesses a round should verify: as many as raise the tokens a second, by what has been measured.

Pure: the standard library alone; times are arguments.

A guess that is right with everything before it in a share `likely` of the cases adds `likely` tokens to the round and a
row's time to it, which pays while `likely / row > tokens / time` for the round as it stands. Estimates can be wrong, so
each sequence has an account besides: it begins with a small credit, earns a small share of all time, gains the time
that right guesses saved and loses what guesses took. A proposal may lose no more than the account holds, as far as the
estimates tell, and there is none while it is empty. So where drafting loses it costs the first credit and that share;
and once the account holds the first credit again, one guess is tried although it does not seem to pay: the dearer a
row, the more rarely.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Final

from ropeway.serving.drafting.acceptance import Acceptance
from ropeway.serving.drafting.cost import CostLine

MOST: Final = 31
"""Most guesses a round and sequence. llama.cpp's CPU attention computes 64 rows or more of a sequence in another way,
with other bits; and past 32 rows the gain is small."""

FIRST_CREDIT: Final = 0.8
MOST_CREDIT: Final = 4.0
"""What an account begins with and holds at most, in rounds without guesses. It is never overdrawn: one bad proposal
must not keep the good ones out for long."""
BEYOND: Final = 1.0
"""How far the cost of all rows of a proposal may exceed the account, in rounds without guesses."""
EARNED: Final = 0.01
"""The share of a sequence's time that its account earns, and so what looking again costs in the long run."""

FADE: Final = 0.9
"""How much of a running mean stays from one turn to the next."""


class Window:
    """The choice for every sequence of a ring, and what it is made from. `priors` are the drafter's."""

    def __init__(self, priors: Items[float]) -> None:
        self.acceptance = Acceptance(priors)
        self.cost = CostLine()
        self.guess_s = 0.0
        """What the drafter takes for a guess, a running mean."""
        self._credits: dict[int, float] = {}
        self._streams = 1
        self._rows = 0.0
        self._right = 0.0

    @property
    def hopeful(self) -> bool:
        """Guesses of the best grade would pay, as far as the ring's counts tell."""
        best = max(self.acceptance.rate(grade) for grade in range(len(self.acceptance.priors)))
        return not self.cost.known or best * self.cost.at(1) > self.cost.row_s + self.guess_s

    def choice(self, sequence_id: int, read_s: float = 0.0) -> Choice | None:
        """Begin a proposal, where the account allows one; `read_s` is what the drafter has to read first."""
        if not self.cost.known:
            return None
        credit_s = self._credit_s(sequence_id) - read_s
        if credit_s <= 0.0:
            return None
        streams = self._streams
        plain_s = self.cost.at(streams)
        # The other streams of the round are taken to draft as the ring's streams have done lately.
        others = streams - 1
        return Choice(
            self.acceptance,
            sequence_id,
            tokens=1 + others * (1 + self._right),
            time_s=self.cost.at(streams + others * self._rows),
            row_s=self.cost.row_s + self.guess_s,
            credit_s=credit_s,
            rows_s=credit_s + BEYOND * plain_s,
            probe=credit_s >= FIRST_CREDIT * plain_s,
        )

    def landed(self, rows: int, seconds: float, streams: int) -> None:
        """A round of decodes alone took so long."""
        self.cost.observe(rows, seconds)
        self._streams = streams

    def verified(self, sequence_id: int, grades: Items[int], right: int, drafting_s: float) -> None:
        """A sequence has taken part in a round with guesses of these grades (or none), of which `right` were right.

        `drafting_s` is what its drafter took.
        """
        if grades:
            self.acceptance.observe(sequence_id, grades, right)
        self._rows += (1 - FADE) * (len(grades) - self._rows)
        self._right += (1 - FADE) * (right - self._right)
        if not self.cost.known:
            return
        plain_s = self.cost.at(self._streams)
        own_s = plain_s / self._streams
        change_s = (EARNED + right) * own_s - len(grades) * self.cost.row_s - drafting_s
        credit_s = self._credit_s(sequence_id) + change_s
        self._credits[sequence_id] = max(0.0, min(MOST_CREDIT * plain_s, credit_s))

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended."""
        self.acceptance.forget(sequence_id)
        self._credits.pop(sequence_id, None)

    def _credit_s(self, sequence_id: int) -> float:
        return self._credits.setdefault(sequence_id, FIRST_CREDIT * self.cost.at(self._streams))


class Choice:
    """One proposal as it grows: `take` says for each guess in turn whether it goes into the round."""

    def __init__(
        self,
        acceptance: Acceptance,
        sequence_id: int,
        *,
        tokens: float,
        time_s: float,
        row_s: float,
        credit_s: float,
        rows_s: float,
        probe: bool,
    ) -> None:
        self.grades: list[int] = []
        self._acceptance = acceptance
        self._sequence_id = sequence_id
        self._tokens = tokens
        self._time_s = time_s
        self._row_s = row_s
        self._credit_s = credit_s
        self._most = min(MOST, int(rows_s / row_s) if row_s > 0 else MOST)
        self._probe = probe
        self._likely = 1.0

    @property
    def open(self) -> bool:
        """Whether any further guess could be worth its row: it need not be made where none could."""
        return len(self.grades) < self._most and (self._looks_again or self._pays(self._likely))

    def take(self, grade: int) -> bool:
        """Whether the next guess, of this grade, is worth its row; the first one also when it is time to look again."""
        likely = self._likely * self._acceptance.rate(grade, self._sequence_id)
        if not self.open or not (self._looks_again or self._pays(likely)):
            return False
        self.grades.append(grade)
        self._likely = likely
        self._tokens += likely
        self._time_s += self._row_s
        self._credit_s -= (1 - likely) * self._row_s
        return True

    @property
    def _looks_again(self) -> bool:
        return self._probe and not self.grades

    def _pays(self, likely: float) -> bool:
        return likely * self._time_s > self._tokens * self._row_s and (1 - likely) * self._row_s <= self._credit_s
