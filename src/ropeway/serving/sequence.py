"""One conversation at the scheduler's level: what was asked for, what came so far and how it ended.

Pure: the standard library alone. Knows nothing of text, of slots or of the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is chosen from logits; the filters run in the order that `sampler.py` states.

    `temperature` 0 takes the most likely token. `top_k` 0 means no limit, `top_p` 1.0 and `min_p` 0.0 cut nothing off.
    `seed` is 64 bits; whoever takes in a request without one draws it. Raises ValueError with the field's name.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature: {self.temperature} is not a finite number from 0 up")
        if self.top_k < 0:
            raise ValueError(f"top_k: {self.top_k} is negative")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p: {self.top_p} is outside (0, 1]")
        if not 0.0 <= self.min_p <= 1.0:
            raise ValueError(f"min_p: {self.min_p} is outside [0, 1]")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed: {self.seed} is outside 0..2^64-1")


class State(Enum):
    """Where a sequence stands."""

    WAITING = "waiting"
    """In the queue; no stage knows it yet."""
    ENTERING = "entering"
    """Its prompt is going through the ring."""
    DECODING = "decoding"
    """Its whole prompt has been planned; it waits for a token or for its next turn."""
    FINISHED = "finished"


class Finish(Enum):
    """Why a sequence ended."""

    STOP = "stop"
    """A stop token, or the caller said that a stop string was met."""
    LENGTH = "length"
    """max_tokens or the context is used up."""
    CANCELLED = "cancelled"


@dataclass(slots=True, eq=False)
class Sequence:
    """A prompt and the reply that grows behind it. The scheduler alone changes it once it has been added.

    `id` is the stream's id on the wire as well: it rises from one sequence to the next and is never used again in a
    ring's life. `produced` has every token that was chosen, a stop token included. With `every_row` the logits of all
    prompt rows are wanted, not the last row's alone (and so its prompt is never taken from the prompt cache).
    `rows_back`: a drafter wants the last layer's rows of them all, which has the same effect. `cached_rows` counts the
    prompt rows that came from the prompt cache.
    """

    id: int
    prompt: tuple[int, ...]
    max_tokens: int
    params: SamplingParams = SamplingParams()
    stop_ids: frozenset[int] = frozenset()
    every_row: bool = False
    rows_back: bool = False
    produced: list[int] = field(default_factory=list)
    cached_rows: int = 0
    state: State = State.WAITING
    finish: Finish | None = None

    @property
    def all_rows(self) -> bool:
        """Every row of the prompt comes back to rank 0."""
        return self.every_row or self.rows_back

    @property
    def reply(self) -> list[int]:
        """The tokens of the reply's text: what was produced, without a stop token at its end."""
        if self.produced and self.produced[-1] in self.stop_ids:
            return self.produced[:-1]
        return list(self.produced)
