"""A runner on a ring of fake engines, turned by the test, and what every request has heard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fake_engine import reply_alone
from fake_ranks import FakeRing
from ropeway.serving.board import Board
from ropeway.serving.chooser import JobChooser
from ropeway.serving.inbox import Inbox
from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.runner import Runner
from ropeway.serving.scheduler import Propose
from ropeway.serving.sequence import Finish
from ropeway.serving.service import FailedEvent, GenerateEvent, GenerateRequest, PromptEvent, TokenEvent

STATE_BYTES = 8
"""Of a fake layer's state, a position."""
TURNS = 5000
"""No test needs more."""


@dataclass(eq=False)
class Client:
    """One request's events, which must come in order and end once."""

    request: GenerateRequest
    id: int = -1
    tokens: list[int] = field(default_factory=list)
    prompt: PromptEvent | None = None
    finish: Finish | None = None
    failed: FailedEvent | None = None
    gone: bool = False
    """It has asked for its end."""

    def __call__(self, event: GenerateEvent) -> None:
        assert not self.ended, f"{event} after the end"
        if isinstance(event, FailedEvent):
            self.failed = event
        elif isinstance(event, PromptEvent):
            assert self.prompt is None
            self.prompt = event
        else:
            assert isinstance(event, TokenEvent)
            assert self.prompt is not None
            self.tokens.append(event.token)
            self.finish = event.finish
            logprob = event.logprob
            assert (logprob is None) == (self.request.top_logprobs is None)
            assert logprob is None or logprob.token == event.token

    @property
    def ended(self) -> bool:
        """It has had its last event."""
        return self.finish is not None or self.failed is not None


class Served:
    """What a replica builds around a ring; `cache_rows` bounds the prompt cache."""

    def __init__(
        self,
        ring: FakeRing,
        *,
        groups: int = 1,
        queue: int = 1000,
        cache_rows: int = 0,
        propose: Propose = lambda _, __: (),
    ) -> None:
        self.ring = ring
        self.chooser = JobChooser()
        self.inbox = Inbox(queue)
        self.loop = ring.loop(
            self.chooser,
            groups=groups,
            lookup=lambda sequence: self.cache.lookup(sequence),
            propose=propose,
            on_acks=lambda rank, acks: self.runner.on_acks(rank, acks),
            on_round=lambda scheduled, _: self.runner.on_round(scheduled),
        )
        world = ring.layout.world
        self.cache = PromptCache(world, self.loop.scheduler.piece, 1, cache_rows)
        limits = ring.rank0.limits
        self.board = Board(ring.layout, "fake", limits.context, limits.parallel, queue)
        self.runner = Runner(self.loop, self.chooser, self.cache, self.inbox, self.board)
        self.board.attach((), self.cache, self.chooser.jobs)
        self.parallel = limits.parallel

    def submit(self, request: GenerateRequest) -> Client:
        """Queue a request."""
        client = Client(request)
        client.id = self.inbox.submit(request, self.parallel, client)
        return client

    def end(self, client: Client, finish: Finish = Finish.CANCELLED) -> None:
        """The client wants no more."""
        client.gone = True
        self.inbox.end(client.id, finish)

    def until(self, met: Callable[[], bool]) -> None:
        """Turn until `met`."""
        for _ in range(TURNS):
            if met():
                return
            self.runner.turn()
        raise AssertionError("it never came to this")

    def finish(self) -> None:
        """Turn until all is quiet."""
        self.until(lambda: self.loop.scheduler.idle and not self.inbox.live)
        assert self.loop.held_rows == 0
        assert self.chooser.jobs == {}

    def ask(self, request: GenerateRequest) -> Client:
        """One request from beginning to end."""
        client = self.submit(request)
        self.until(lambda: client.ended)
        return client

    def expected(self, request: GenerateRequest) -> list[int]:
        """The reply that a request gets alone, greedily."""
        limit = min(request.max_tokens, self.ring.rank0.limits.context - len(request.prompt))
        return reply_alone(request.prompt, limit, self.ring.layers, request.stop_ids)

    def settle(self) -> None:
        """Wait until every stage has done what the last round asked."""
        live = self.ring.rank0.ring
        if live is None or not self.loop.records:
            return
        last = self.loop.records[-1]
        while len(last.dones) < live.world - 1:
            self.loop.collect()

    def judge_kept(self, *, exactly: bool = True) -> None:
        """The stages keep what rank 0 believes (or some rows more), and within the budget."""
        self.ask(GenerateRequest((1,), 1))  # drops leave with the next plan
        self.finish()
        self.settle()
        assert self.cache.kept_bytes <= self.cache.limit_bytes
        kept = sum(stage.kept_bytes for stage in self.ring.stages)
        believed = self.cache.kept_bytes * self.ring.layers * STATE_BYTES
        assert kept == believed or (not exactly and kept >= believed > 0)
