"""A served ring: the loop in a thread of its own, requests from any thread, and the way back after a loss.

Keeps the contract of serving/service.py. When the ring is lost every request ends with an event that says so, unless it
may wait for the next ring (`resume`). The ring is then brought up again with growing pauses, a bounded number of times
in a row.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from ropeway.checkpoints.checkpoint import open_checkpoint
from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import EngineError
from ropeway.launch.drafting import open_drafting
from ropeway.launch.parts import part_size
from ropeway.launch.placement import Placement
from ropeway.launch.rank0 import Rank0
from ropeway.launch.replica_options import ReplicaOptions, cards_of
from ropeway.serving.board import Board
from ropeway.serving.chooser import JobChooser
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.inbox import RETRY_AFTER_S, Inbox
from ropeway.serving.prediction import Prediction
from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.runner import Runner
from ropeway.serving.sequence import Finish
from ropeway.serving.service import (
    GenerateEvent,
    GenerateRequest,
    PromptTooLong,
    RingUnavailable,
    ServiceState,
    Tokenizer,
    Unsupported,
    needs_logits,
)
from ropeway.serving.speech import Speech
from ropeway.transport import Ring, RingEnded
from ropeway.types import Backend, EngineKind, SamplerAt

STABLE_S: Final = 60.0
"""A ring that was ready for so long may be restarted as often as at first."""
DRAIN_S: Final = 180.0
HOLD_S: Final = 300.0
"""How long a request waits for the next ring."""
LEAVE_S: Final = 10.0
"""How long the loop may take to come out of what it does when the replica is stopped."""

_EXPECTED: Final = (RingEnded, EngineError, CheckpointError, OSError)

_log = logging.getLogger("ropeway.replica")

Opener = Callable[[Callable[[Ring], None]], AbstractContextManager[Rank0]]
"""What brings a ring up, and gives it away to a function before bring-up, as `open_local` and `open_ring` do."""


class Replica:
    """Rank 0 as the API sees it. `open_ring` brings a ring up, or raises; it is called again after a loss."""

    def __init__(self, placement: Placement, open_ring: Opener, options: ReplicaOptions) -> None:
        self._placement = placement
        self._open_ring = open_ring
        self._options = options
        self._speech = Speech(placement.path)
        self._inbox = Inbox(options.queue)
        self._part = 0
        flags = placement.options
        name = options.model_id or self._speech.name
        self._board = Board(placement.layout, name, flags.context, flags.parallel, options.queue)
        if options.plan is not None:
            self._board.prediction = Prediction(options.plan.problem, options.plan.price, _log.warning)
        self._draining = threading.Event()
        self._leaving = threading.Event()
        self._ready_at = math.inf
        """Since when the ring is ready (time.monotonic)."""
        self._ring: Ring | None = None
        """The ring that is there or being brought up."""
        self._lost_at = math.inf
        """Since when there is no ring that was ready (time.monotonic)."""
        self._kinds: frozenset[tuple[EngineKind, Backend]] = frozenset()
        """The engines and backends of the last ring that was ready."""
        self._thread = threading.Thread(target=self._serve, name="ropeway loop", daemon=True)

    def start(self) -> None:
        """Begin to bring the ring up; returns at once."""
        self._thread.start()

    def drain(self, limit_s: float = DRAIN_S) -> None:
        """Take no more requests, let the running ones end within `limit_s`, and fail what is left then."""
        self._board.become(ServiceState.DRAINING, "the server is being stopped")
        self._draining.set()
        self._inbox.wait_empty(limit_s)
        self._inbox.close(self._board.detail)

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Drain, then stop the ring. One that is being brought up just now is not waited for longer than `LEAVE_S`."""
        self.drain(drain_s)
        self._leaving.set()
        self._inbox.wake.set()
        if self._ring is not None and self._ready_at == math.inf:
            self._ring.stop()
        if self._thread.ident is not None:
            self._thread.join(LEAVE_S)
        if not self._thread.is_alive():
            self._speech.close()

    def place_again(self, why: str, limit_s: float = DRAIN_S) -> None:
        """Take no requests for a while, let the running ones end within `limit_s`, and open a ring anew."""
        ring = self._ring
        if ring is None or self._board.state is not ServiceState.READY:
            return  # there is none, and the next one is placed by what is there then
        self._board.become(ServiceState.RESTARTING, why)
        self._inbox.wait_empty(limit_s)
        if ring is self._ring:
            ring.stop()

    # What the API asks for

    @property
    def model_id(self) -> str:
        return self._board.model_id

    @property
    def context(self) -> int:
        return self._placement.options.context

    @property
    def fingerprint(self) -> str:
        return self._board.placement

    @property
    def tokenizer(self) -> Tokenizer:
        return self._speech.vocabulary

    @property
    def chat_template(self) -> str:
        return self._speech.template_text

    @property
    def bos(self) -> str:
        return self._speech.vocabulary.bos

    @property
    def eos(self) -> str:
        return self._speech.vocabulary.eos

    def submit(self, request: GenerateRequest, on_event: Callable[[GenerateEvent], None]) -> int:
        """Queue a request; see serving/service.py."""
        board = self._board
        if board.state is not ServiceState.READY:
            raise RingUnavailable(board.detail or f"the ring is {board.state.value}", RETRY_AFTER_S)
        if len(request.prompt) >= self.context:
            raise PromptTooLong(len(request.prompt), self.context)
        layout = self._placement.layout
        if layout.sampler is SamplerAt.LAST and layout.world > 1 and (field := needs_logits(request)):
            raise Unsupported(field, "the last rank chooses the likeliest token (sampler: last)")
        return self._inbox.submit(request, self._placement.options.parallel, on_event)

    def end(self, request_id: int, finish: Finish) -> None:
        """Free a request's slot; see serving/service.py."""
        self._inbox.end(request_id, finish)

    def state(self) -> ServiceState:
        return self._board.state

    def ring(self) -> dict[str, object]:
        return self._board.ring()

    # The loop's thread

    def _serve(self) -> None:
        tries = 0
        try:
            while not self._draining.is_set():
                self._ready_at = math.inf
                why = self._one_ring()
                if self._draining.is_set():
                    return
                tries = 1 if time.monotonic() - self._ready_at > STABLE_S else tries + 1
                if tries > self._options.restarts:
                    self._lose(ServiceState.FAILED, f"given up after {tries - 1} restarts; the last: {why}")
                    return
                self._lose(ServiceState.RESTARTING, why)
                pause_s = self._options.pause_s * 2 ** min(tries - 1, 16)
                self._draining.wait(min(self._options.longest_pause_s, pause_s))
        finally:
            # Whatever it was that ended this thread, nobody is left to wait for it.
            self._lose(ServiceState.FAILED, self._board.detail or "the serving loop has ended")

    def _lose(self, state: ServiceState, why: str) -> None:
        """There is no ring any more: say so, end every request, and forget what the loop did."""
        self._tell(state, why)
        self._board.detach()

    def _tell(self, state: ServiceState, why: str) -> None:
        """Say that there is no ring, and end every request. From any thread."""
        if self._board.state not in (state, ServiceState.DRAINING, ServiceState.FAILED):
            _log.warning("%s: %s", state.value, why)
        self._board.become(state, why)
        self._lost_at = min(self._lost_at, time.monotonic())
        if self._options.resume and state is ServiceState.RESTARTING and time.monotonic() - self._lost_at < HOLD_S:
            self._inbox.hold(why)
        else:
            self._inbox.close(why)

    def _one_ring(self) -> str:
        """Bring a ring up and serve until it ends; why it ended."""
        try:
            with self._open_ring(self._begun) as rank0:
                try:
                    self._run(rank0)
                except BaseException as error:
                    # At once: putting away what is left of a ring takes seconds.
                    self._lose(ServiceState.RESTARTING, _why(error))
                    raise
        except Exception as error:  # noqa: BLE001 (a fault of ours ends the ring and its requests as any loss does)
            if not isinstance(error, _EXPECTED):
                _log.exception("the serving loop")
            return _why(error)
        return "stopped"

    def _begun(self, ring: Ring) -> None:
        """A ring is about to be brought up."""
        self._ring = ring
        ring.on_end(lambda: self._ring_ended(ring))
        if self._leaving.is_set():
            ring.stop()

    def _ring_ended(self, ring: Ring) -> None:
        """The loop may be in a forward that lasts: whoever waits for it is told now. In a thread of the ring."""
        if ring is self._ring and ring.lost is not None and self._ready_at < math.inf:
            self._tell(ServiceState.RESTARTING, str(ring.lost))
        self._inbox.wake.set()

    def _run(self, rank0: Rank0) -> None:
        """Serve on a ring that is ready, until it ends or we leave."""
        ring = rank0.ring
        with open_drafting(self._options.draft, rank0.placement, rank0.stage.engine) as drafting:
            runner = self._runner(rank0, drafting)
            self._ready_at = time.monotonic()
            self._lost_at = math.inf
            kinds = frozenset((fact.describe.engine, fact.describe.backend) for fact in rank0.facts)
            if self._kinds not in (frozenset(), kinds):
                self._inbox.close("the ring was placed again with other engines")
            self._kinds = kinds
            self._inbox.open()
            self._board.become(ServiceState.READY)
            _log.info("ready: %s", self._board.placement)
            while not self._leaving.is_set():
                runner.turn()
                if ring is not None:
                    ring.check()

    def _runner(self, rank0: Rank0, drafting: Drafting | None) -> Runner:
        layout = rank0.placement.layout
        row_bytes = open_checkpoint(rank0.placement.path).kv_row_bytes * layout.layers
        if not self._part:
            # Once for all rings of this replica: other parts could mean other bits.
            self._part = part_size(rank0, self.context)
        chooser = JobChooser()
        loop = rank0.loop(
            chooser,
            groups=self._options.groups,
            part=self._part,
            lookup=lambda sequence: cache.lookup(sequence),
            on_acks=lambda rank, acks: runner.on_acks(rank, acks),
            on_round=lambda scheduled, _work: runner.on_round(scheduled),
            drafting=drafting,
        )
        piece = min(rank0.resumes_at, loop.scheduler.piece)
        limit = self._options.cache_bytes if not rank0.recurrent or piece == rank0.grain else 0
        cache = PromptCache(layout.world, piece, row_bytes, limit, exact=rank0.recurrent)
        runner = Runner(loop, chooser, cache, self._inbox, self._board)
        self._board.show(layout, rank0.name)
        self._board.attach(cards_of(rank0), cache, chooser.jobs, None if drafting is None else drafting.figures)
        return runner


def _why(error: BaseException) -> str:
    """What clients are told."""
    return str(error) if isinstance(error, _EXPECTED) else f"the server has failed ({type(error).__name__})"
