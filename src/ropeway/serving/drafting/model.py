"""A small model as a drafter: the whole of a GGUF in one context on rank 0, one slot a sequence.

It draws as the sequence itself will draw: the same parameters, seed and position. A drafter that has the model's own
probabilities is right every time then, at any temperature, and one that comes close is right more often than one that
always names its likeliest token. (That changes no reply: what counts is what the model's own logits give.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from ropeway.engines.base import Logits, Span
from ropeway.serving import sampler
from ropeway.serving.drafting.drafter import Guess
from ropeway.serving.sequence import Sequence

GRADES: Final = (0.3, 0.6, 0.85, 0.97)
"""A guess is graded by the probability that the small model gives it; these are where grades 1 to 4 begin."""

PRIORS: Final = (0.25, 0.45, 0.65, 0.85, 0.95)


class SmallModel(Protocol):
    """What is asked of the model; see engines/llamacpp/whole.py."""

    def forward(self, spans: Items[Span], tokens: Items[int], wanted: Items[int]) -> Logits: ...
    def keep(self, slot: int, length: int) -> None: ...
    def release(self, slot: int) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Slot:
    """One sequence's place. It holds the rows of the sequence's first `true` tokens, then those of all guesses but the
    last."""

    number: int
    true: int = 0
    guesses: list[Guess] = field(default_factory=list)

    @property
    def ahead(self) -> int:
        """Guesses whose rows are held."""
        return max(0, len(self.guesses) - 1)


class ModelDrafter:
    """Guesses of a small model. A `Drafter`; its calls raise EngineError.

    `parallel` sequences of at most `context` tokens, `chunk` rows a forward. Both models have the first `vocabulary`
    tokens: others are not guessed, and a sequence that has one is not followed any further.
    """

    priors = PRIORS

    def __init__(self, model: SmallModel, parallel: int, context: int, chunk: int, vocabulary: int) -> None:
        self._model = model
        self._context = context
        self._chunk = chunk
        self._vocabulary = vocabulary
        self._free = list(range(parallel))
        self._slots: dict[int, _Slot] = {}

    def behind(self, sequence: Sequence) -> int:
        """How many of the sequence's tokens are not known here, though some may have been guessed."""
        slot = self._slots.get(sequence.id)
        return len(sequence.prompt) + len(sequence.produced) - (0 if slot is None else slot.true)

    def observe(self, sequence: Sequence) -> None:
        """Drop the guesses that did not come true, and read what is new."""
        slot = self._slots.get(sequence.id)
        if slot is None:
            if not self._free:
                return
            slot = self._slots[sequence.id] = _Slot(self._free.pop(0))
        size = len(sequence.prompt)
        fresh = [*sequence.prompt[slot.true :], *sequence.produced[max(0, slot.true - size) :]]
        if any(token >= self._vocabulary for token in fresh):
            return
        kept = 0
        for token, guess in zip(fresh, slot.guesses[: slot.ahead], strict=False):
            if token != guess.token:
                break
            kept += 1
        if kept == len(fresh):
            slot.true += kept
            del slot.guesses[:kept]
            return
        if kept < slot.ahead:
            self._model.keep(slot.number, slot.true + kept)
        slot.guesses = [self._read(sequence, slot, slot.true + kept, fresh[kept:])]
        slot.true += len(fresh)

    def propose(self, sequence: Sequence) -> Iterator[Guess]:
        """The guesses that there are, then more."""
        slot = self._slots.get(sequence.id)
        index = 0
        while slot is not None and not self.behind(sequence) and (index < len(slot.guesses) or self.ahead(sequence)):
            guess = slot.guesses[index]
            if guess.token >= self._vocabulary:
                return
            yield guess
            index += 1

    def ahead(self, sequence: Sequence) -> bool:
        """One more guess behind those that there are."""
        slot = self._slots.get(sequence.id)
        if slot is None or not slot.guesses or slot.guesses[-1].token >= self._vocabulary:
            return False
        held = slot.true + slot.ahead
        if held == self._context:
            return False
        slot.guesses.append(self._read(sequence, slot, held, [slot.guesses[-1].token]))
        return True

    def forget(self, sequence_id: int) -> None:
        """Free the slot."""
        slot = self._slots.pop(sequence_id, None)
        if slot is not None:
            self._model.release(slot.number)
            self._free.append(slot.number)

    def close(self) -> None:
        """Free the model."""
        self._slots.clear()
        self._model.close()

    def _read(self, sequence: Sequence, slot: _Slot, first: int, tokens: list[int]) -> Guess:
        """Put tokens behind the `first` rows that the slot holds; what may follow."""
        logits = np.empty((0, 0), np.float32)
        for at in range(0, len(tokens), self._chunk):
            part = tokens[at : at + self._chunk]
            last = [len(part) - 1] if at + len(part) == len(tokens) else []
            logits = self._model.forward([Span(slot.number, first + at, len(part))], part, last)
        row = logits[-1]
        token = sampler.choose(row, sequence.params, first + len(tokens) - len(sequence.prompt))
        weights = np.exp(row - row.max())
        return Guess(token, bisect_right(GRADES, float(weights[token] / weights.sum())))
