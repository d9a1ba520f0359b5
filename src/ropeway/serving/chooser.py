"""Tokens for API requests: bias, penalties, grammar and log-probabilities around the sampler, a request at a time.

Drafts are verified by choosing at each of their positions (sampler.py). What goes wrong for one request ends that
request alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np

from ropeway.engines.base import Logits
from ropeway.serving import sampler
from ropeway.serving.rounds import Wanted
from ropeway.serving.sequence import Sequence
from ropeway.serving.service import GenerateEvent, GenerateRequest, TokenLogprob
from ropeway.serving.underway import RoundRecord

_log = logging.getLogger("ropeway.chooser")


class History:
    """Token ids as the penalties want them, grown token by token: a reply makes no array anew for each of its own."""

    def __init__(self, prompt: Items[int], reply: Items[int]) -> None:
        self._ids = np.array([*dict.fromkeys(prompt)], np.int64)
        self._known = set(prompt)
        self._distinct = len(self._ids)
        self._reply = np.empty(64, np.int64)
        self._replied = 0
        for token in reply:
            self.push(token)

    def push(self, token: int) -> None:
        """The next token of the reply."""
        if self._replied == len(self._reply):
            self._reply = np.resize(self._reply, 2 * self._replied)
        self._reply[self._replied] = token
        self._replied += 1
        if token not in self._known:
            self._known.add(token)
            if self._distinct == len(self._ids):
                self._ids = np.resize(self._ids, 2 * self._distinct + 64)
            self._ids[self._distinct] = token
            self._distinct += 1

    @property
    def seen(self) -> sampler.Ids:
        """The tokens of prompt and reply, each once."""
        return self._ids[: self._distinct]

    @property
    def reply(self) -> sampler.Ids:
        """The reply's tokens in order."""
        return self._reply[: self._replied]


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way: its sequence, and what has been seen of it. Times are monotonic, 0 for not yet."""

    request: GenerateRequest
    sequence: Sequence
    on_event: Callable[[GenerateEvent], None]
    queued_ns: int
    entered_ns: int = 0
    """When its first round left."""
    first_ns: int = 0
    """When its first token was chosen."""
    rounds: list[RoundRecord] = field(default_factory=list)
    """The first rounds that it took part in."""
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)
    chosen: dict[int, TokenLogprob] = field(default_factory=dict)
    """Log-probabilities of chosen tokens by their place in the reply, until they are committed."""
    history: History | None = None
    """For the penalties, where there are any."""
    error: str = ""
    """Why no more tokens can be chosen for it; the one that was committed last means nothing then."""
    before: int = 0
    """Tokens that an earlier ring has produced, and its client has heard; they stand at the end of the prompt now."""
    told: int = 0
    """Tokens of this ring that its client has heard."""

    @property
    def can_go_on(self) -> bool:
        """Another ring can take it over. A grammar that has begun cannot forget what was chosen and not told."""
        return self.request.constraint is None or not self.entered_ns

    def go_on(self) -> None:
        """Begin again where its client stands, on another ring: what was told is read with the prompt."""
        before, said = self.sequence, self.sequence.produced[: self.told]
        self.sequence = Sequence(
            before.id,
            (*before.prompt, *said),
            before.max_tokens - len(said),
            before.params,
            before.stop_ids,
            every_row=self.request.prompt_logprobs and not self.before and not said,
        )
        self.before += len(said)
        self.told = 0
        self.history = None
        self.chosen.clear()
        self.prompt_logprobs.clear()


class JobChooser:
    """Chooses for every job of a loop, by its request."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}

    def choose(self, wanted: Wanted, logits: Logits) -> Items[int]:
        """The drafts that the request would have chosen itself, and the token after them."""
        job = self.jobs[wanted.sequence.id]
        if job.error:
            return (0,)
        chosen: list[int] = []
        try:
            for row, draft in zip(logits, (*wanted.drafts, None), strict=True):
                token = self._token(job, row, len(job.sequence.produced) + len(chosen))
                chosen.append(token)
                if token != draft or token in job.request.stop_ids:
                    break
        except Exception as error:  # noqa: BLE001 (what a grammar's library raises is its own affair)
            _log.exception("request %d fails", job.sequence.id)
            job.error = f"no token could be chosen: {error}"
            return (0,)
        return chosen

    def _token(self, job: Job, row: sampler.Row, position: int) -> int:
        request = job.request
        changed = sampler.with_bias(row, request.logit_bias)
        penalties = request.penalties
        if penalties.repetition != 1.0 or penalties.presence or penalties.frequency:
            history = job.history = job.history or _history(job)
            changed = sampler.with_repetition_penalty(changed, history.seen, penalties.repetition)
            changed = sampler.with_count_penalties(changed, history.reply, penalties.presence, penalties.frequency)
        if request.constraint is not None:
            changed = np.where(request.constraint.mask(), changed, np.float32(-np.inf))
        token = sampler.choose(changed, request.params, job.before + position)
        if request.top_logprobs is not None:
            job.chosen[position] = logprob(row, token, request.top_logprobs)
        if request.constraint is not None:
            request.constraint.advance(token)
        if job.history is not None:
            job.history.push(token)
        return token

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        """Log-probabilities of the prompt's own tokens: row i speaks of token i + 1."""
        job = self.jobs[wanted.sequence.id]
        prompt = wanted.sequence.prompt
        if not job.prompt_logprobs:
            job.prompt_logprobs.append(None)
        try:
            for index, row in enumerate(logits):
                following = wanted.position + offset + index + 1
                if following < len(prompt):
                    job.prompt_logprobs.append(logprob(row, prompt[following], job.request.top_logprobs or 0))
        except ValueError as error:
            _log.exception("request %d fails", job.sequence.id)
            job.error = f"the prompt has no log-probabilities: {error}"


def _history(job: Job) -> History:
    """What the penalties count: the prompt that came, and the reply on all rings."""
    prompt = job.sequence.prompt
    first = len(prompt) - job.before
    return History(prompt[:first], (*prompt[first:], *job.sequence.produced))


def logprob(row: sampler.Row, token: int, top: int) -> TokenLogprob:
    """A token's log-probability under unmodified logits, and the `top` likeliest tokens'."""
    logs = sampler.log_probs(row)
    best = tuple((int(other), float(logs[other])) for other in sampler.largest(row, top)) if top else ()
    return TokenLogprob(token, float(logs[token]), best)
