"""What a ring did for some sequences: every round, and the logits that came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from ropeway.engines.base import Logits
from ropeway.serving.rounds import Scheduled, Wanted
from ropeway.stage.work import StageWork
from ropeway.verify.spool import Spool


@dataclass(frozen=True, slots=True)
class Kept:
    """One row of logits: its number in the spool, and that of the token it chose; None inside a prompt."""

    number: int
    produced: int | None


class Recorder:
    """A greedy chooser that keeps every round, and every row of logits that chose a token. Drafts are verified.

    Where sequences ask for every row, the rows inside their prompts are kept too.
    """

    def __init__(self) -> None:
        self.rounds: list[tuple[Scheduled, StageWork]] = []
        self._spool = Spool()
        self._rows: dict[int, dict[int, Kept]] = {}
        """By the identity of a round's wanted, which lives as long as the round: the row in it, what was kept."""
        self._produced: dict[int, int] = {}
        self._digests: dict[int, hashlib._Hash] = {}

    @property
    def rows(self) -> int:
        """Rows of logits that were kept."""
        return self._spool.rows

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
        produced = self._produced.get(wanted.sequence.id, 0)
        self._produced[wanted.sequence.id] = produced + len(chosen)
        self._keep(wanted, wanted.rows - 1 - len(wanted.drafts), logits[: len(chosen)], produced)
        return chosen

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        """Keep rows inside a prompt; the last one, which chooses, comes again by `choose`."""
        inside = wanted.rows - (1 + len(wanted.drafts) if wanted.sample else 0) - offset
        self._keep(wanted, offset, logits[: max(0, inside)], None)

    def _keep(self, wanted: Wanted, row: int, logits: Logits, produced: int | None) -> None:
        if not len(logits):
            return
        first = self._spool.put(logits)
        digest = self._digests.setdefault(wanted.sequence.id, hashlib.sha256())
        digest.update(logits.tobytes())
        kept = self._rows.setdefault(id(wanted), {})
        for at in range(len(logits)):
            kept[row + at] = Kept(first + at, None if produced is None else produced + at)

    def kept(self, wanted: Wanted) -> Iterator[tuple[int, Kept]]:
        """What was kept of a round's wanted, by its rows, ascending."""
        yield from sorted(self._rows.get(id(wanted), {}).items())

    def row(self, kept: Kept) -> Logits:
        """One row of logits, [vocabulary]."""
        return self._spool.get(kept.number)

    def digest(self) -> str:
        """SHA-256 hex over every sequence's logits in order; of no logits at all where the last rank chose tokens."""
        total = hashlib.sha256()
        for number in sorted(self._digests):
            total.update(number.to_bytes(4, "little") + self._digests[number].digest())
        return total.hexdigest()

    def close(self) -> None:
        """Let the logits go."""
        self._spool.close()
