"""What a placement is for: the goal, the load it is judged by, and what a person has pinned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ropeway.placement.facts import KV_SHARE
from ropeway.types import SamplerAt

TOKEN_BYTES: Final = 24
"""What goes back to rank 0 for a stream where the last rank chooses the tokens (wire.md 8)."""
GOALS: Final = ("decode", "prompt", "throughput")


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be small, as weights: ms a token of one stream, ms to the first token, ms a token of all streams.

    `Goal(decode=R, prompt=1)` is the time of a request with a reply of R tokens.
    """

    decode: float = 0.0
    prompt: float = 0.0
    throughput: float = 0.0

    def __post_init__(self) -> None:
        weights = (self.decode, self.prompt, self.throughput)
        if not all(0.0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ValueError("goal: weights are numbers from 0 on, and one of them is above 0")

    @classmethod
    def parse(cls, text: str) -> Goal:
        """'decode', or weights such as 'prompt=1,decode=200'. Raises ValueError."""
        weights: dict[str, float] = {}
        for part in text.split(","):
            name, equals, weight = part.strip().partition("=")
            if name not in GOALS or name in weights:
                raise ValueError(f"goal: {part.strip()!r} is not decode, prompt or throughput, or a weight of one")
            try:
                weights[name] = float(weight) if equals else 1.0
            except ValueError:
                raise ValueError(f"goal: {weight!r} is not a number") from None
        return cls(**weights)

    def __str__(self) -> str:
        weights = {name: getattr(self, name) for name in GOALS if getattr(self, name)}
        if set(weights.values()) == {1.0} and len(weights) == 1:
            return next(iter(weights))
        return ", ".join(f"{weight:g} x {name}" for name, weight in weights.items())


@dataclass(frozen=True, slots=True)
class Wanted:
    """The load: what must fit, and what the times are predicted for.

    `context` positions a stream and `streams` at once must fit. Decode is predicted for rounds of `rows` rows at
    `depth` positions (0: behind the prompt), a prompt of `prompt` rows in parts of `part`. Rank 0 has `drafter_bytes`.
    """

    context: int = 4096
    streams: int = 1
    prompt: int = 1024
    part: int = 512
    depth: int = 0
    kv: str = "f16"
    sampler: SamplerAt = SamplerAt.FIRST
    drafter_bytes: int = 0
    rows: int = 1

    def __post_init__(self) -> None:
        for name in ("context", "streams", "prompt", "part", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not at least 1")
        if self.kv not in KV_SHARE:
            raise ValueError(f"kv: {self.kv!r} is none of {', '.join(KV_SHARE)}")

    @property
    def positions(self) -> int:
        """Where decode is predicted."""
        return self.depth or min(self.prompt, self.context)

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """The prompt's parts as (first position, rows)."""
        return tuple((first, min(self.part, self.prompt - first)) for first in range(0, self.prompt, self.part))

    def rows_a_group(self, world: int) -> int:
        """Streams that share a round, where as many rounds are under way as there are stages."""
        return -(-self.streams // world)


@dataclass(frozen=True, slots=True)
class Pins:
    """What a person has decided: rank 0's node, nodes with their exact layers, nodes to leave out.

    `order` names every rank's node, where the ring stands already and only the cuts are open.
    """

    first: str = ""
    order: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    leave_out: frozenset[str] = frozenset()
