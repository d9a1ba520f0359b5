"""Tokens for API requests: bias, penalties, grammar and log-probabilities around the sampler, a request at a time."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np

from ropeway.engines.base import Logits
from ropeway.serving import sampler
from ropeway.serving.rounds import Wanted
from ropeway.serving.sequence import Sequence
from ropeway.serving.service import GenerateEvent, GenerateRequest, TokenLogprob


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way: its sequence, and what has been seen of it."""

    request: GenerateRequest
    sequence: Sequence
    on_event: Callable[[GenerateEvent], None]
    queued_ns: int
    entered_ns: int = 0
    first_ns: int = 0
    first_round: int = 0
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)
    chosen: dict[int, TokenLogprob] = field(default_factory=dict)
    """Log-probabilities of chosen tokens by their place in the reply, until they are committed."""


class JobChooser:
    """Chooses for every job of a loop, by its request."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}

    def choose(self, wanted: Wanted, logits: Logits) -> Items[int]:
        """The next token under the request's bias, penalties and grammar."""
        job = self.jobs[wanted.sequence.id]
        return (self._token(job, logits[-1], wanted.sequence.produced),)

    def _token(self, job: Job, row: sampler.Row, produced: Items[int]) -> int:
        request, sequence = job.request, job.sequence
        changed = sampler.with_bias(row, request.logit_bias)
        penalties = request.penalties
        if penalties.repetition != 1.0:
            seen = np.array([*sequence.prompt, *produced], np.int64)
            changed = sampler.with_repetition_penalty(changed, seen, penalties.repetition)
        if penalties.presence or penalties.frequency:
            reply = np.array(produced, np.int64)
            changed = sampler.with_count_penalties(changed, reply, penalties.presence, penalties.frequency)
        if request.constraint is not None:
            changed = np.where(request.constraint.mask(), changed, np.float32(-np.inf))
        token = sampler.choose(changed, request.params, len(produced))
        if request.top_logprobs is not None:
            job.chosen[len(produced)] = logprob(row, token, request.top_logprobs)
        if request.constraint is not None:
            request.constraint.advance(token)
        return token

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        """Log-probabilities of the prompt's own tokens: row i speaks of token i + 1."""
        job = self.jobs[wanted.sequence.id]
        prompt = wanted.sequence.prompt
        if not job.prompt_logprobs:
            job.prompt_logprobs.append(None)
        for index, row in enumerate(logits):
            following = wanted.position + offset + index + 1
            if following < len(prompt):
                job.prompt_logprobs.append(logprob(row, prompt[following], job.request.top_logprobs or 0))


def logprob(row: sampler.Row, token: int, top: int) -> TokenLogprob:
    """A token's log-probability under unmodified logits, and the `top` likeliest tokens'."""
    logs = sampler.log_probs(row)
    best = tuple((int(other), float(logs[other])) for other in sampler.largest(row, top)) if top else ()
    return TokenLogprob(token, float(logs[token]), best)
