"""What GET /v1/ring shows: the placement, what every stage is doing, streams, and the latest requests' timelines.

Written by the loop's thread, read by any: what is shown is replaced whole, never changed in place.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from ropeway.serving.chooser import Job
from ropeway.serving.figures import RECENT, TIMELINE_ROUNDS, Rates, Shares, stage_shares, timeline
from ropeway.serving.loop import Loop, RoundRecord
from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.sequence import Finish, State
from ropeway.serving.service import ServiceState
from ropeway.types import Layout, SamplerAt

REFRESH_NS = 250_000_000
"""How often the figures are drawn up while the ring works."""
STREAMS_SHOWN = 64


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


@dataclass(slots=True)
class _Shown:
    """The moving figures, drawn up by the loop's thread."""

    stages: list[dict[str, object]] = field(default_factory=list)
    round: dict[str, object] = field(default_factory=dict)
    streams: list[dict[str, object]] = field(default_factory=list)
    used: int = 0
    waiting: int = 0
    tokens_per_s: float = 0.0
    prompt_tokens_per_s: float = 0.0
    cache: dict[str, object] = field(default_factory=dict)


class Board:
    """One replica's board; it outlives its rings."""

    def __init__(self, layout: Layout, model_id: str, context: int, parallel: int, queue: int) -> None:
        self.model_id = model_id
        self.placement = f"rw-{layout.fingerprint().hex()[:12]}"
        self.state = ServiceState.STARTING
        self.detail = ""
        self._layout = layout
        self._context = context
        self._parallel = parallel
        self._queue = queue
        self._started = time.monotonic()
        self._cards: tuple[StageCard, ...] = ()
        self._cache: PromptCache | None = None
        self._jobs: dict[int, Job] = {}
        self._shown = _Shown()
        self._drawn_ns = 0
        self._rates = Rates()
        self._recent: deque[dict[str, object]] = deque(maxlen=RECENT)

    def become(self, state: ServiceState, detail: str = "") -> None:
        """What /ready tells from now on."""
        self.detail = detail
        self.state = state

    def attach(self, cards: tuple[StageCard, ...], cache: PromptCache, jobs: dict[int, Job]) -> None:
        """A ring is ready; `jobs` are those that its runner serves."""
        self._cards, self._cache, self._jobs = cards, cache, jobs
        self._shown = _Shown()
        self._drawn_ns = 0

    def produced(self, now: int, tokens: int, prompt_tokens: int) -> None:
        """Tokens were committed."""
        self._rates.add(now, tokens, prompt_tokens)

    def stepped(self, loop: Loop, now: int) -> None:
        """A round has landed."""
        if now - self._drawn_ns >= REFRESH_NS:
            self._draw(loop, now)

    def idle(self, loop: Loop) -> None:
        """Nothing runs."""
        self._draw(loop, time.perf_counter_ns())

    def finished(self, job: Job, finish: Finish, loop: Loop) -> None:
        """A request has ended: keep where its time went."""
        now = time.perf_counter_ns()
        world = self._layout.world
        mine = [r for r in loop.records if r.launched_ns >= job.queued_ns][:TIMELINE_ROUNDS]
        begun = min((r.launched_ns for r in mine), default=now)
        self._recent.appendleft(
            {
                "id": job.sequence.id,
                "finish": finish.value,
                "prompt_tokens": len(job.sequence.prompt),
                "cached_tokens": job.sequence.cached_rows,
                "completion_tokens": len(job.sequence.produced),
                "queued_ms": round((begun - job.queued_ns) / 1e6, 3),
                "first_token_ms": round((job.first_ns - job.queued_ns) / 1e6, 3) if job.first_ns else None,
                "total_ms": round((now - job.queued_ns) / 1e6, 3),
                "timeline": {"unit": "ms", "rounds": len(mine), "stages": timeline(mine, world, job.queued_ns)},
            }
        )

    def _draw(self, loop: Loop, now: int) -> None:
        records = list(loop.records)
        last = records[-1] if records else None
        held = loop.held_rows
        stages: list[dict[str, object]] = []
        for card in self._cards:
            shares = stage_shares(records, card.rank, now)
            stages.append(
                {
                    "activity": _activity(shares),
                    "shares": {
                        "forward": round(shares.forward, 4),
                        "wait_rows": round(shares.wait_rows, 4),
                        "wait_send": round(shares.wait_send, 4),
                        "other": round(shares.other, 4),
                    },
                    "forward_ms": _forward_ms(last, card.rank),
                    "kv_rows_used": held,
                }
            )
        tokens, prompt_tokens = self._rates.per_second(now)
        cache = self._cache
        self._shown = _Shown(
            stages,
            _round(records, now, self._layout.world),
            [_stream(job, now) for job in list(self._jobs.values())[:STREAMS_SHOWN]],
            loop.scheduler.running,
            loop.scheduler.waiting,
            tokens,
            prompt_tokens,
            {} if cache is None else _cache(cache),
        )
        self._drawn_ns = now

    def ring(self) -> dict[str, object]:
        """The board as JSON-ready values."""
        shown, layout = self._shown, self._layout
        moving = shown.stages if len(shown.stages) == len(self._cards) else [{} for _ in self._cards]
        return {
            "state": self.state.value,
            "detail": self.detail,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "placement": self.placement,
            "sampler": layout.sampler.value,
            "model": {
                "id": self.model_id,
                "layers": layout.layers,
                "hidden": layout.boundary.hidden,
                "context": self._context,
                "checkpoint": layout.checkpoint,
            },
            "stages": [_card(card) | now for card, now in zip(self._cards, moving, strict=True)],
            "links": _links(layout),
            "round": shown.round,
            "streams": shown.streams,
            "slots": {"used": shown.used, "total": self._parallel},
            "queue": {"waiting": shown.waiting, "limit": self._queue},
            "throughput": {
                "tokens_per_s": round(shown.tokens_per_s, 2),
                "prompt_tokens_per_s": round(shown.prompt_tokens_per_s, 2),
            },
            "prompt_cache": shown.cache,
            "recent": list(self._recent),
        }


def _activity(shares: Shares) -> str:
    if shares.forward + shares.wait_send < 0.02:
        return "waiting"
    most = max(shares.forward, shares.wait_rows, shares.wait_send)
    return "sending" if most == shares.wait_send else "waiting" if most == shares.wait_rows > 0.75 else "computing"


def _forward_ms(record: RoundRecord | None, rank: int) -> float | None:
    if record is None:
        return None
    if rank == 0:
        return round((record.own_ns + record.head_ns) / 1e6, 3)
    done = record.dones.get(rank)
    return None if done is None else round(done.forward_ns / 1e6, 3)


def _round(records: list[RoundRecord], now: int, world: int) -> dict[str, object]:
    if not records:
        return {"number": 0, "rows": 0, "parts": 0, "last_ms": None, "per_s": 0.0, "wire_ms": None}
    last = records[-1]
    recent = [r for r in records if r.landed_ns >= now - 2_000_000_000]
    wires = sorted(w for r in recent if (w := r.wire_ns(world)) is not None)
    landed = last.landed_ns or now
    return {
        "number": last.number,
        "rows": last.rows,
        "parts": last.parts,
        "last_ms": round((landed - last.launched_ns) / 1e6, 3),
        "per_s": round(len(recent) / 2, 2),
        "wire_ms": round(wires[len(wires) // 2] / 1e6, 3) if wires else None,
    }


def _stream(job: Job, now: int) -> dict[str, object]:
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


def _cache(cache: PromptCache) -> dict[str, object]:
    return {
        "entries": len(cache),
        "bytes": cache.kept_bytes,
        "limit_bytes": cache.limit_bytes,
        "hits": cache.hits,
        "misses": cache.misses,
        "hit_tokens": cache.hit_tokens,
    }


def _card(card: StageCard) -> dict[str, object]:
    return {name: getattr(card, name) for name in StageCard.__slots__}


def _links(layout: Layout) -> list[dict[str, object]]:
    if layout.world == 1:
        return []
    row = layout.boundary.row_bytes()
    links: list[dict[str, object]] = [{"from": r, "to": r + 1, "row_bytes": row} for r in range(layout.world - 1)]
    back = row if layout.sampler is SamplerAt.FIRST else 16
    return [*links, {"from": layout.world - 1, "to": 0, "row_bytes": back}]
