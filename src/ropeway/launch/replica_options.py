"""How a replica serves, and its stages as cards for the board."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ropeway.launch.drafting import DraftOptions
from ropeway.launch.placing import Planned
from ropeway.launch.rank0 import Rank0
from ropeway.serving.board import StageCard

LONGEST_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How a replica serves: requests that may wait, memory for the prompt cache, rounds at once, restarts in a row.

    `pause_s` goes before the first restart, twice as much before each further one, but no more than `longest_pause_s`.
    """

    queue: int = 64
    cache_bytes: int = 256 << 20
    groups: int = 1
    restarts: int = 5
    pause_s: float = 0.5
    longest_pause_s: float = LONGEST_PAUSE_S
    model_id: str = ""
    resume: bool = False
    """Requests of a lost ring wait for the next one and go on there, where it has the same engines and backends."""
    draft: DraftOptions = field(default_factory=DraftOptions)
    plan: Planned | None = None
    """Where the placement comes from, to hold what it takes against what it was predicted to take."""


def cards_of(rank0: Rank0) -> tuple[StageCard, ...]:
    """The stages of a ring that is ready, as the board shows them."""
    head_rank = rank0.placement.layout.head_rank
    return tuple(
        StageCard(
            rank=rank,
            first=fact.describe.first,
            end=fact.describe.end,
            engine=fact.describe.engine.name.lower(),
            backend=fact.describe.backend.name.lower(),
            address=fact.address,
            weights_bytes=fact.ready.weights_bytes,
            load_ms=fact.ready.load_ms,
            kv_rows=fact.describe.kv_rows,
            embeds=rank == 0,
            head=rank == head_rank,
        )
        for rank, fact in enumerate(rank0.facts)
    )
