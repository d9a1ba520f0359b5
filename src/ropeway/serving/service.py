"""What the front door sees of rank 0's serving loop: requests in, token events out, the ring's state to show.

The loop runs in a thread of its own; every method here may be called from any thread and returns at once. Events
arrive by the callback that a request brings, one at a time, on the loop's thread or (a FailedEvent) on another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ropeway.serving.prompts import PromptTooLong as PromptTooLong
from ropeway.serving.sequence import Finish, SamplingParams


class Constraint(Protocol):
    """A grammar's state: which tokens may come next. Called on the loop's thread, one sequence a constraint."""

    def mask(self) -> npt.NDArray[np.bool_]:
        """Allowed tokens, [vocabulary]; the end tokens are allowed exactly where the grammar may end."""
        ...

    def advance(self, token: int) -> None:
        """`token` was chosen."""
        ...


@dataclass(frozen=True, slots=True)
class Penalties:
    """OpenAI's presence and frequency penalties (over the reply) and the repetition penalty (over prompt and reply)."""

    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One reply to one prompt. `top_logprobs` None: no log-probabilities; n: the chosen token's and the n best."""

    prompt: tuple[int, ...]
    max_tokens: int
    params: SamplingParams = field(default_factory=SamplingParams)
    penalties: Penalties = Penalties()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    top_logprobs: int | None = None
    prompt_logprobs: bool = False
    """Log-probabilities of the prompt's own tokens as well (echo): every row comes back."""
    stop_ids: frozenset[int] = frozenset()
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's natural-log probability under the unmodified logits, and the best alternatives, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptEvent:
    """The prompt has been read: how many of its rows came from the prompt cache; its tokens' log-probabilities
    (the first token has none) where they were asked for."""

    cached_tokens: int
    logprobs: tuple[TokenLogprob | None, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of the reply; with `finish` it is the last (a stop token itself is in `token`)."""

    token: int
    logprob: TokenLogprob | None = None
    finish: Finish | None = None


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """The request has ended without a finish: the ring was lost, or the stage failed. `text` is for people."""

    text: str


GenerateEvent = PromptEvent | TokenEvent | FailedEvent


class ServiceState(Enum):
    """What /ready tells."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    DRAINING = "draining"
    FAILED = "failed"


class RingUnavailable(Exception):
    """The ring is not whole; try again after `retry_after_s`."""

    def __init__(self, text: str, retry_after_s: int) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Unsupported(ValueError):
    """This placement cannot do what the request's `field` (OpenAI's name for it) asks for."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


def needs_logits(request: GenerateRequest) -> str:
    """OpenAI's name of the first field that asks for more than the likeliest token; empty where none does."""
    penalties = request.penalties
    asked = {
        "temperature": request.params.temperature != 0.0,
        "presence_penalty": penalties.presence != 0.0,
        "frequency_penalty": penalties.frequency != 0.0,
        "repetition_penalty": penalties.repetition != 1.0,
        "logit_bias": bool(request.logit_bias),
        "logprobs": request.top_logprobs is not None or request.prompt_logprobs,
        "response_format": request.constraint is not None,
    }
    return next((field for field, wanted in asked.items() if wanted), "")


class QueueFull(Exception):
    """No room in the queue; try again after `retry_after_s`."""

    def __init__(self, text: str, retry_after_s: int) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Tokenizer(Protocol):
    """Text to token ids and back. Thread-safe."""

    @property
    def size(self) -> int: ...
    @property
    def end_tokens(self) -> frozenset[int]: ...
    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...
    def piece(self, token: int, *, special: bool = False) -> bytes: ...


class Service(Protocol):
    """Rank 0, as the API sees it."""

    @property
    def model_id(self) -> str: ...
    @property
    def context(self) -> int: ...
    @property
    def fingerprint(self) -> str:
        """The placement's short name, for `system_fingerprint` and the X-Ropeway-Placement header."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def chat_template(self) -> str: ...
    @property
    def bos(self) -> str: ...
    @property
    def eos(self) -> str: ...

    def submit(self, request: GenerateRequest, on_event: Callable[[GenerateEvent], None]) -> int:
        """Queue a request; gives its id. Raises RingUnavailable, QueueFull, PromptTooLong or Unsupported, at once."""
        ...

    def end(self, request_id: int, finish: Finish) -> None:
        """Nothing more is wanted (a stop string was met, the client hung up): free its slot in the next round."""
        ...

    def state(self) -> ServiceState: ...

    def ring(self) -> dict[str, object]:
        """The placement and live figures, as JSON-ready values, for GET /v1/ring and the page."""
        ...
