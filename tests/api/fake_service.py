"""A Service without a ring: a thread that makes one token a turn for every sequence, by a rule that the test sets."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from api.byte_tokenizer import CHATML, TURN_END, ByteTokenizer
from ropeway.serving.sequence import Finish
from ropeway.serving.service import (
    FailedEvent,
    GenerateEvent,
    GenerateRequest,
    PromptEvent,
    PromptTooLong,
    QueueFull,
    RingUnavailable,
    ServiceState,
    TokenEvent,
    TokenLogprob,
    Unsupported,
    needs_logits,
)

WAIT_S: Final = 10.0
"""No test waits longer for anything."""

Reply = Callable[[GenerateRequest], Sequence[int]]


def noise(request: GenerateRequest) -> Sequence[int]:
    """Twelve letters that depend on the prompt and the seed alone."""
    seed = request.params.seed if request.params.temperature else 0
    key = repr((request.prompt, seed)).encode()
    return [97 + byte % 26 for byte in hashlib.sha256(key).digest()[:12]]


@dataclass(slots=True)
class _Live:
    id: int
    request: GenerateRequest
    on_event: Callable[[GenerateEvent], None]
    tokens: Iterator[int]
    made: int = 0


class FakeService:
    """Deterministic, and stoppable at any token. `reply` makes a request's tokens; the end token follows by itself."""

    model_id = "fake/tiny"
    fingerprint = "ring-0123abcd"
    context = 2048
    bos = ""
    eos = "<|im_end|>"

    def __init__(self, template: str = CHATML) -> None:
        self.chat_template = template
        self.tokenizer = ByteTokenizer()
        self._change = threading.Condition()
        self._closing = False
        self._next_id = 1
        self.reset()
        self._thread = threading.Thread(target=self._run, name="fake-loop")
        self._thread.start()

    def reset(self) -> None:
        """As new; what is under way is forgotten."""
        with self._change:
            self._live: dict[int, _Live] = {}
            self._state = ServiceState.READY
            self.requests: list[GenerateRequest] = []
            self.ended: list[tuple[int, Finish]] = []
            self.reply: Reply = noise
            self.queue = 64
            self.likeliest_alone = False
            """Refuse what needs logits, as a ring whose last rank chooses."""
            self.cached = 0
            self.hold_after: int | None = None
            """A sequence that has made so many tokens waits until this changes (`release`)."""

    # What the API calls.

    def submit(self, request: GenerateRequest, on_event: Callable[[GenerateEvent], None]) -> int:
        with self._change:
            if self._state is not ServiceState.READY:
                raise RingUnavailable(f"the ring is {self._state.value}", 3)
            if len(request.prompt) >= self.context:
                raise PromptTooLong(len(request.prompt), self.context)
            if self.likeliest_alone and (field := needs_logits(request)):
                raise Unsupported(field, "the last rank chooses")
            if len(self._live) >= self.queue:
                raise QueueFull("the queue is full", 7)
            assert request.max_tokens + len(request.prompt) <= self.context
            self._next_id += 1
            self.requests.append(request)
            tokens = iter([*self.reply(request), TURN_END])
            self._live[self._next_id] = _Live(self._next_id, request, on_event, tokens)
            self._change.notify_all()
            return self._next_id

    def end(self, request_id: int, finish: Finish) -> None:
        with self._change:
            self._live.pop(request_id, None)
            self.ended.append((request_id, finish))
            self._change.notify_all()

    def state(self) -> ServiceState:
        return self._state

    def ring(self) -> dict[str, object]:
        shares = {"forward": 0.5, "wire": 0.25}
        stage = {"rank": 0, "first": 0, "end": 3, "engine": "none", "embeds": True, "shares": shares}
        return {
            "state": self._state.value,
            "stages": [stage, {**stage, "rank": 1}],
            "throughput": {"tokens_per_s": 12.5, "x y": 1},
            "overlap": {"at_work": 1.5, "possible": 2.0, "efficiency": 0.75 if self.cached else None},
            "prompt_cache": {"hits": 3, "entries": 1},
            "slots": None,
        }

    # What a test does.

    def release(self) -> None:
        """Let all that wait go on."""
        with self._change:
            self.hold_after = None
            self._change.notify_all()

    def lose_ring(self, text: str = "rank 1 was lost") -> None:
        """What a killed stage does."""
        with self._change:
            self._state = ServiceState.RESTARTING
            for live in self._live.values():
                live.on_event(FailedEvent(text))
            self._live.clear()

    def restore(self) -> None:
        """The ring is whole again."""
        self._state = ServiceState.READY

    def wait_for(self, met: Callable[[], bool]) -> None:
        """Until `met`, judged at each change of the service."""
        with self._change:
            assert self._change.wait_for(met, WAIT_S), "the service never came to this"

    @property
    def running(self) -> int:
        """Sequences under way."""
        return len(self._live)

    def close(self) -> None:
        """End the thread."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with self._change:
            while not self._closing:
                ready = [live for live in self._live.values() if self.hold_after is None or live.made < self.hold_after]
                for live in ready:
                    self._step(live)
                self._change.notify_all()
                self._change.wait(0.0001 if ready else None)

    def _step(self, live: _Live) -> None:
        request = live.request
        if not live.made:
            logprobs = tuple(
                self._logprob(token, request.top_logprobs or 0) if at else None
                for at, token in enumerate(request.prompt)
            )
            live.on_event(PromptEvent(self.cached, logprobs if request.prompt_logprobs else ()))
        token = next(live.tokens) if request.constraint is None else self._allowed(live)
        live.made += 1
        finish = None
        if token in request.stop_ids:
            finish = Finish.STOP
        elif live.made == request.max_tokens:
            finish = Finish.LENGTH
        top = request.top_logprobs
        live.on_event(TokenEvent(token, None if top is None else self._logprob(token, top), finish))
        if finish is not None:
            self._live.pop(live.id, None)

    def _allowed(self, live: _Live) -> int:
        """A token that the grammar allows: the reply's own where it may be, else any; soon the end where it may end."""
        constraint = live.request.constraint
        assert constraint is not None
        ids = np.flatnonzero(constraint.mask()).tolist()
        wanted = next(live.tokens, TURN_END)
        rng = random.Random(f"{live.request.params.seed}/{live.made}")
        if wanted in ids and wanted != TURN_END:
            token = wanted
        elif TURN_END in ids and (len(ids) <= 2 or rng.random() < 0.5):
            token = TURN_END
        else:
            token = rng.choice([token for token in ids if token not in self.tokenizer.end_tokens])
        constraint.advance(token)
        return int(token)

    def _logprob(self, token: int, top: int) -> TokenLogprob:
        others = tuple(((token + step) % self.tokenizer.size, -0.5 - step) for step in range(top))
        return TokenLogprob(token, -0.5, others)
