"""What the board shows, as JSON-ready values: pure functions of cards, records and jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from ropeway.serving.chooser import Job
from ropeway.serving.figures import WINDOW_NS, Shares, reach_ns, stage_shares
from ropeway.serving.loop import HISTORY
from ropeway.serving.overlap import overlap
from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.sequence import State
from ropeway.serving.spans import timeline
from ropeway.serving.underway import RoundRecord
from ropeway.types import Layout, SamplerAt

RATE_NS: Final = 2_000_000_000
"""Rounds a second are counted over so long."""


@dataclass(frozen=True, slots=True)
class StageCard:
    """The fixed facts of a stage, as the page shows them."""

    rank: int
    first: int
    end: int
    engine: str
    backend: str
    address: str
    weights_bytes: int
    load_ms: int
    kv_rows: int
    embeds: bool
    head: bool


class Finished:
    """A request that has ended. Its timeline is drawn when somebody looks: the last dones come after the last token."""

    def __init__(self, facts: dict[str, object], rounds: Sequence[RoundRecord], world: int, queued_ns: int) -> None:
        self._facts = facts
        self._rounds = rounds
        self._world = world
        self._queued_ns = queued_ns
        self._drawn: dict[str, object] | None = None

    def show(self) -> dict[str, object]:
        """The request as JSON-ready values."""
        drawn = self._drawn
        if drawn is None:
            whole = all(len(record.dones) == self._world - 1 for record in self._rounds)
            stages = timeline(self._rounds, self._world, self._queued_ns)
            drawn = {**self._facts, "timeline": {"unit": "ms", "rounds": len(self._rounds), "stages": stages}}
            if whole:
                self._drawn = drawn
        return drawn


def stage_figures(
    cards: Iterable[StageCard], records: Sequence[RoundRecord], held_rows: int, now: int, *, idle: bool = False
) -> list[dict[str, object]]:
    """What every stage has been doing; `idle`: just now nothing."""
    found = list(cards)
    window = reach_ns(records, now, WINDOW_NS, HISTORY)
    drawn = []
    for card in found:
        shares = stage_shares(records, card.rank, len(found), now, window)
        drawn.append(_stage(shares, _forward_ms(records, card.rank), held_rows))
        if idle:
            drawn[-1]["activity"] = "waiting"
    return drawn


def overlap_figures(records: Sequence[RoundRecord], world: int, now: int) -> dict[str, object]:
    """How well the stages worked side by side in the last seconds; nulls where nothing was under way."""
    found = overlap(records, world, now - WINDOW_NS)
    if found is None:
        return {"at_work": None, "possible": None, "efficiency": None}
    return {
        "at_work": round(found.at_work, 3),
        "possible": round(found.possible, 3),
        "efficiency": round(found.efficiency, 4),
    }


def quiet(card: StageCard) -> dict[str, object]:
    """A stage of which nothing is known yet."""
    return asdict(card) | _stage(Shares(0.0, 0.0, 0.0), None, 0)


def _stage(shares: Shares, forward_ms: float | None, held_rows: int) -> dict[str, object]:
    return {
        "activity": _activity(shares),
        "shares": {
            "forward": round(shares.forward, 4),
            "wait_rows": round(shares.wait_rows, 4),
            "wait_send": round(shares.wait_send, 4),
            "wire": round(shares.wire, 4),
            "waiting": round(shares.waiting, 4),
            "other": round(shares.other, 4),
        },
        "forward_ms": forward_ms,
        "kv_rows_used": held_rows,
    }


def _activity(shares: Shares) -> str:
    if shares.forward + shares.wait_send < 0.02:
        return "waiting"
    most = max(shares.forward, shares.wait_rows, shares.wait_send)
    return "sending" if most == shares.wait_send else "waiting" if most == shares.wait_rows > 0.75 else "computing"


def _forward_ms(records: Sequence[RoundRecord], rank: int) -> float | None:
    """Of the latest round that the stage has ended."""
    for record in reversed(records):
        if rank == 0 and record.landed_ns:
            return round((record.own_ns + record.head_ns) / 1e6, 3)
        if (done := record.dones.get(rank)) is not None:
            return round(done.forward_ns / 1e6, 3)
    return None


def last_round(records: Sequence[RoundRecord], now: int, world: int) -> dict[str, object]:
    """The latest round, and how often there is one."""
    if not records:
        return {"number": 0, "rows": 0, "parts": 0, "last_ms": None, "per_s": 0.0, "wire_ms": None}
    last = records[-1]
    window = reach_ns(records, now, RATE_NS, HISTORY)
    recent = [r for r in records if r.landed_ns >= now - window]
    wires = sorted(w for r in recent if (w := r.wire_ns(world)) is not None)
    landed = last.landed_ns or now
    return {
        "number": last.number,
        "rows": last.rows,
        "parts": last.parts,
        "last_ms": round((landed - last.launched_ns) / 1e6, 3),
        "per_s": round(len(recent) / window * 1e9, 2),
        "wire_ms": round(wires[len(wires) // 2] / 1e6, 3) if wires else None,
    }


def stream(job: Job, now: int) -> dict[str, object]:
    """One request that has not ended."""
    sequence = job.sequence
    names = {State.WAITING: "waiting", State.ENTERING: "entering"}
    return {
        "id": sequence.id,
        "state": names.get(sequence.state, "decoding"),
        "prompt_tokens": len(sequence.prompt),
        "cached_tokens": sequence.cached_rows,
        "produced": len(sequence.produced),
        "age_s": round((now - job.queued_ns) / 1e9, 2),
    }


def cache_figures(cache: PromptCache) -> dict[str, object]:
    """The prompt cache in numbers."""
    return {
        "entries": len(cache),
        "bytes": cache.kept_bytes,
        "limit_bytes": cache.limit_bytes,
        "hits": cache.hits,
        "misses": cache.misses,
        "hit_tokens": cache.hit_tokens,
    }


def links(layout: Layout) -> list[dict[str, object]]:
    """The boundaries, the one back to rank 0 included."""
    if layout.world == 1:
        return []
    row = layout.boundary.row_bytes()
    ahead: list[dict[str, object]] = [{"from": r, "to": r + 1, "row_bytes": row} for r in range(layout.world - 1)]
    back = row if layout.sampler is SamplerAt.FIRST else 16
    return [*ahead, {"from": layout.world - 1, "to": 0, "row_bytes": back}]
