"""A model's own next-token head as a drafter (MTP): it reads the rows that come back from the last layer.

Row i with token i + 1 speaks of token i + 2. So after a round it takes in the rows whose tokens turned out right, and
guesses on from its own last row, a step at a time, for as long as the guesses pay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from ropeway.engines.base import NextTokenHead
from ropeway.serving.drafting.drafter import Guess
from ropeway.serving.drafting.model import GRADES, PRIORS
from ropeway.serving.sequence import Sequence

CHUNK = 256
"""Rows that are taken in at once."""


@dataclass(slots=True)
class _Slot:
    """One sequence's place: `taken` rows are in the head, `rows` came behind them, `gone_on` are the head's own.

    `guess` is what it thinks comes next, of true tokens alone.
    """

    number: int
    taken: int = 0
    rows: list[bytes] = field(default_factory=list)
    gone_on: int = 0
    guess: Guess | None = None


class MtpDrafter:
    """Guesses of a next-token head. A `Drafter`; its calls raise EngineError."""

    priors = PRIORS

    def __init__(self, head: NextTokenHead, parallel: int) -> None:
        self._head = head
        self._free = list(range(parallel))
        self._slots: dict[int, _Slot] = {}

    def take_rows(self, sequence: Sequence, position: int, rows: memoryview, count: int) -> None:
        """`count` rows of the last layer for a sequence's positions from `position` on; what was there is void."""
        slot = self._slots.get(sequence.id)
        if slot is None:
            if position or not self._free:
                return
            slot = self._slots[sequence.id] = _Slot(self._free.pop(0))
        if not slot.taken <= position <= slot.taken + len(slot.rows):
            return
        del slot.rows[position - slot.taken :]
        size = len(rows) // count
        slot.rows += [bytes(rows[index * size : (index + 1) * size]) for index in range(count)]

    def behind(self, sequence: Sequence) -> int:
        """Tokens that it has not read: all but the first count, since the first is no row's follower."""
        slot = self._slots.get(sequence.id)
        taken = 0 if slot is None else slot.taken
        return max(0, len(sequence.prompt) + len(sequence.produced) - 1 - taken)

    def observe(self, sequence: Sequence) -> None:
        """Take in the rows whose following token is known by now."""
        slot = self._slots.get(sequence.id)
        fresh = self.behind(sequence)
        if slot is None or not fresh or len(slot.rows) < fresh:
            return
        self._go_back(slot)
        tokens = [*sequence.prompt, *sequence.produced][slot.taken + 1 :]
        for at in range(0, fresh, CHUNK):
            part = slot.rows[at : min(fresh, at + CHUNK)]
            slot.guess = _guess(self._head.take(slot.number, b"".join(part), tokens[at : at + len(part)]))
        slot.taken += fresh
        slot.rows.clear()

    def propose(self, sequence: Sequence) -> Iterator[Guess]:
        """The head's guess, then what it makes of its own rows."""
        slot = self._slots.get(sequence.id)
        if slot is None or slot.guess is None or self.behind(sequence):
            return
        self._go_back(slot)
        guess = slot.guess
        while True:
            yield guess
            slot.gone_on += 1
            guess = _guess(self._head.go_on(slot.number, guess.token))

    def _go_back(self, slot: _Slot) -> None:
        """Forget what it made of its own rows."""
        if slot.gone_on:
            self._head.keep(slot.number, slot.taken)
            slot.gone_on = 0

    def ahead(self, _sequence: Sequence) -> bool:
        """It knows nothing of a round before its rows are back."""
        return False

    def forget(self, sequence_id: int) -> None:
        """Free the sequence's slot."""
        slot = self._slots.pop(sequence_id, None)
        if slot is not None:
            self._head.release(slot.number)
            self._free.append(slot.number)

    def close(self) -> None:
        """Free the head."""
        self._head.close()


def _guess(found: tuple[int, float]) -> Guess:
    token, share = found
    return Guess(token, bisect_right(GRADES, share))
