"""Jobs on one ring: what came in goes to the scheduler, what the loop committed goes out as events. One thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from ropeway.serving.board import Board
from ropeway.serving.chooser import Job, JobChooser
from ropeway.serving.inbox import End, Inbox
from ropeway.serving.loop import Loop
from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.scheduler import Committed
from ropeway.serving.sequence import Finish
from ropeway.serving.service import PromptEvent, TokenEvent
from ropeway.wire import CacheAck, CacheAction, CacheOp

IDLE_S: Final = 0.2
"""How long an idle loop sleeps at most before it looks whether its ring still lives."""


class Runner:
    """Serves an inbox through a loop until told to stop."""

    def __init__(self, loop: Loop, chooser: JobChooser, cache: PromptCache, inbox: Inbox, board: Board) -> None:
        self._loop = loop
        self._chooser = chooser
        self._cache = cache
        self._inbox = inbox
        self._board = board
        self._saving = False

    def turn(self) -> None:
        """Take in what has come, run one step, send events; sleeps for a moment where there is nothing to do.

        Raises RingLost, RingStopped or EngineError.
        """
        if self._saving:
            # A state is kept with its stream's last entry, the next to leave: who comes now can then start from it.
            self._saving = False
        else:
            self._take()
        if self._loop.scheduler.idle:
            self._loop.collect()
            self._board.idle(self._loop)
            self._inbox.wake.wait(IDLE_S)
            self._inbox.wake.clear()
            return
        committed = self._loop.step()
        now = time.perf_counter_ns()
        for one in committed:
            self._commit(one, now)
        self._board.stepped(self._loop, now)

    def on_acks(self, rank: int, acks: Sequence[CacheAck]) -> None:
        """A rank has kept its part of some states, or could not."""
        for key in self._cache.acknowledge(rank, acks):
            self._loop.scheduler.cache(CacheOp(CacheAction.DROP, 0, key))

    def _take(self) -> None:
        for mail in self._inbox.take():
            if isinstance(mail, End):
                self._end(mail)
                continue
            self._chooser.jobs[mail.sequence.id] = mail
            self._loop.scheduler.add(mail.sequence)

    def _end(self, end: End) -> None:
        job = self._chooser.jobs.pop(end.request_id, None)
        if job is None:
            return
        self._loop.scheduler.finish(end.request_id, end.finish)
        if end.finish is Finish.STOP and not self._loop.scheduler.under_way:
            self._keep(job)
        self._done(job, end.finish)

    def _commit(self, committed: Committed, now: int) -> None:
        job = self._chooser.jobs.get(committed.sequence.id)
        if job is None:
            return
        first = len(job.sequence.produced) - len(committed.tokens)
        if not first:
            job.first_ns = now
            self._cache.entered(job.sequence)
            job.on_event(PromptEvent(job.sequence.cached_rows, tuple(job.prompt_logprobs)))
        last = len(committed.tokens) - 1
        for index, token in enumerate(committed.tokens):
            logprob = job.chosen.pop(first + index, None)
            job.on_event(TokenEvent(token, logprob, committed.finish if index == last else None))
        self._board.produced(now, len(committed.tokens), 0 if first else len(job.sequence.prompt))
        if committed.finish is not None:
            del self._chooser.jobs[job.sequence.id]
            self._keep(job)
            self._done(job, committed.finish)

    def _keep(self, job: Job) -> None:
        """Have every stage keep what it holds of a stream that ends, where another prompt may begin the same way.

        The last token of a reply has not run, so its row is not there.
        """
        rows = (*job.sequence.prompt, *job.sequence.produced[:-1])
        if not job.sequence.produced or job.sequence.every_row or not self._cache.wants(rows):
            return
        key, dropped = self._cache.add(rows)
        self._saving = True
        self._loop.scheduler.cache(CacheOp(CacheAction.SAVE, job.sequence.id, key))
        for old in dropped:
            self._loop.scheduler.cache(CacheOp(CacheAction.DROP, 0, old))

    def _done(self, job: Job, finish: Finish) -> None:
        self._inbox.ended(job.sequence.id)
        self._board.finished(job, finish, self._loop)
