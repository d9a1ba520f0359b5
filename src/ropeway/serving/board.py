"""What GET /v1/ring shows: the placement, what every stage is doing, streams, and the latest requests' timelines.

Written by the loop's thread, read by any: what is shown is replaced whole, never changed in place, and nothing that the
loop changes is walked through by a reader.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Final

from ropeway.serving.chooser import Job
from ropeway.serving.drafting.drafting import DraftFigures
from ropeway.serving.drawing import (
    Finished,
    cache_figures,
    last_round,
    links,
    overlap_figures,
    quiet,
    stage_figures,
    stream,
)
from ropeway.serving.drawing import StageCard as StageCard
from ropeway.serving.figures import RECENT, Rates
from ropeway.serving.loop import Loop
from ropeway.serving.prediction import Prediction
from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.sequence import Finish
from ropeway.serving.service import ServiceState
from ropeway.types import Layout, placement_name

REFRESH_NS: Final = 250_000_000
"""How often the figures are drawn up while the ring works."""
STREAMS_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class _Shown:
    """The moving figures, drawn up by the loop's thread."""

    stages: tuple[dict[str, object], ...] = ()
    round: dict[str, object] = field(default_factory=dict)
    overlap: dict[str, object] = field(default_factory=dict)
    streams: list[dict[str, object]] = field(default_factory=list)
    held_rows: int = 0
    used: int = 0
    waiting: int = 0
    tokens_per_s: float = 0.0
    prompt_tokens_per_s: float = 0.0
    cache: dict[str, object] = field(default_factory=dict)


class Board:
    """One replica's board; it outlives its rings."""

    def __init__(self, layout: Layout, model_id: str, context: int, parallel: int, queue: int) -> None:
        self.model_id = model_id
        self.placement = placement_name(layout.fingerprint())
        self._lock = threading.Lock()
        self._status = (ServiceState.STARTING, "")
        self._layout = layout
        self._context = context
        self._parallel = parallel
        self._queue = queue
        self._started = time.monotonic()
        self._cards: tuple[StageCard, ...] = ()
        self._cache: PromptCache | None = None
        self._jobs: dict[int, Job] = {}
        self._drafting: DraftFigures | None = None
        self._shown = _Shown(round=last_round((), 0, layout.world), overlap=overlap_figures((), layout.world, 0))
        self._drawn_ns = 0
        self._rates = Rates()
        self.prediction = Prediction()
        """What the placement was predicted to take; its owner may put another one there before it starts."""
        self._recent: tuple[Finished, ...] = ()

    @property
    def state(self) -> ServiceState:
        """What /ready tells."""
        return self._status[0]

    @property
    def detail(self) -> str:
        """Why it is so, for people; empty while the ring is whole."""
        return self._status[1]

    def become(self, state: ServiceState, detail: str = "") -> None:
        """What /ready tells from now on; once draining, it stays so. From any thread."""
        with self._lock:
            if self.state is not ServiceState.DRAINING:
                self._status = (state, detail)

    def show(self, layout: Layout, placement: str) -> None:
        """The next ring's layout and the placement's name, before it is attached."""
        self._layout = layout
        self.placement = placement

    def attach(
        self,
        cards: tuple[StageCard, ...],
        cache: PromptCache,
        jobs: dict[int, Job],
        drafting: DraftFigures | None = None,
    ) -> None:
        """A ring is ready; `jobs` are those that its runner serves."""
        self._cards, self._cache, self._jobs, self._drafting = cards, cache, jobs, drafting
        self._quiet()

    def detach(self) -> None:
        """The ring is gone, and what it did with it."""
        self._cache, self._jobs, self._drafting = None, {}, None
        self._quiet()

    def _quiet(self) -> None:
        stages = tuple(quiet(card) for card in self._cards)
        cache = {} if self._cache is None else cache_figures(self._cache)
        world = self._layout.world
        self._shown = _Shown(stages, last_round((), 0, world), overlap_figures((), world, 0), cache=cache)
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

    def finished(self, job: Job, finish: Finish) -> None:
        """A request has ended: keep where its time went."""
        now = time.perf_counter_ns()
        facts: dict[str, object] = {
            "id": job.sequence.id,
            "finish": finish.value,
            "prompt_tokens": len(job.sequence.prompt),
            "cached_tokens": job.sequence.cached_rows,
            "completion_tokens": len(job.sequence.produced),
            "queued_ms": round(((job.entered_ns or now) - job.queued_ns) / 1e6, 3),
            "first_token_ms": round((job.first_ns - job.queued_ns) / 1e6, 3) if job.first_ns else None,
            "total_ms": round((now - job.queued_ns) / 1e6, 3),
        }
        latest = Finished(facts, tuple(job.rounds), self._layout.world, job.queued_ns)
        self._recent = (latest, *self._recent[: RECENT - 1])

    def _draw(self, loop: Loop, now: int) -> None:
        records = tuple(loop.records)
        tokens, prompt_tokens = self._rates.per_second(now)
        if running := loop.scheduler.running:
            self.prediction.take(records, self._layout, loop.held_rows // running)
        moving = stage_figures(self._cards, records, loop.held_rows, now, idle=loop.scheduler.idle)
        self._shown = _Shown(
            tuple(asdict(card) | figures for card, figures in zip(self._cards, moving, strict=True)),
            last_round(records, now, self._layout.world),
            overlap_figures(records, self._layout.world, now),
            [stream(job, now) for job in islice(self._jobs.values(), STREAMS_SHOWN)],
            loop.held_rows,
            loop.scheduler.running,
            loop.scheduler.waiting,
            tokens,
            prompt_tokens,
            {} if self._cache is None else cache_figures(self._cache),
        )
        self._drawn_ns = now

    def ring(self) -> dict[str, object]:
        """The board as JSON-ready values; `live` has its plain numbers once more, for the metrics."""
        (state, detail), shown, layout, drafting = self._status, self._shown, self._layout, self._drafting
        return {
            "state": state.value,
            "detail": detail,
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
            "stages": list(shown.stages),
            "links": links(layout),
            "round": shown.round,
            "overlap": shown.overlap,
            "prediction": self.prediction.show(),
            "streams": shown.streams,
            "slots": {"used": shown.used, "total": self._parallel},
            "queue": {"waiting": shown.waiting, "limit": self._queue},
            "throughput": {
                "tokens_per_s": round(shown.tokens_per_s, 2),
                "prompt_tokens_per_s": round(shown.prompt_tokens_per_s, 2),
            },
            "prompt_cache": shown.cache,
            "drafting": {} if drafting is None else asdict(drafting),
            "recent": [finished.show() for finished in self._recent],
            "live": {
                "tokens_per_s": shown.tokens_per_s,
                "prompt_tokens_per_s": shown.prompt_tokens_per_s,
                "rounds_per_s": shown.round["per_s"],
                "slots_used": shown.used,
                "slots_total": self._parallel,
                "queue_waiting": shown.waiting,
                "kv_rows_used": shown.held_rows,
                **{f"prompt_cache_{name}": value for name, value in shown.cache.items()},
            },
        }
