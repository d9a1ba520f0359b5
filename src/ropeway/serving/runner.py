"""Jobs on one ring: what came in goes to the scheduler, what the loop committed goes out as events. One thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from ropeway.serving.board import Board
from ropeway.serving.chooser import Job, JobChooser
from ropeway.serving.figures import TIMELINE_ROUNDS
from ropeway.serving.inbox import End, Inbox
from ropeway.serving.loop import Loop
from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.rounds import Scheduled
from ropeway.serving.scheduler import Committed
from ropeway.serving.sequence import Finish
from ropeway.serving.service import FailedEvent, PromptEvent, TokenEvent
from ropeway.wire import CacheAck, CacheAction, CacheOp

IDLE_S: Final = 0.2
"""How long an idle loop sleeps at most before it looks whether its ring still lives."""


class Runner:
    """Serves an inbox through a loop until told to stop. The loop reports to `on_acks` and `on_round`."""

    def __init__(self, loop: Loop, chooser: JobChooser, cache: PromptCache, inbox: Inbox, board: Board) -> None:
        self._loop = loop
        self._chooser = chooser
        self._cache = cache
        self._inbox = inbox
        self._board = board

    def turn(self) -> None:
        """Take in what has come, run one step, send events; sleeps for a moment where there is nothing to do.

        Raises RingLost, RingStopped or EngineError.
        """
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

    def on_round(self, scheduled: Scheduled) -> None:
        """A round has left: it is the latest of the loop's records."""
        record = self._loop.records[-1]
        for entry in scheduled.plan.entries:
            job = self._chooser.jobs.get(entry.stream)
            if job is None:
                continue
            job.entered_ns = job.entered_ns or record.launched_ns
            if len(job.rounds) < TIMELINE_ROUNDS:
                job.rounds.append(record)

    def _take(self) -> None:
        arrived: list[Job] = []
        for mail in self._inbox.take():
            if isinstance(mail, End):
                self._end(mail)
            else:
                self._chooser.jobs[mail.sequence.id] = mail
                arrived.append(mail)
        # Behind the ends: a state that an end has kept serves who came with it.
        for job in arrived:
            if job.sequence.id not in self._chooser.jobs:
                continue
            try:
                self._loop.scheduler.add(job.sequence)
            except ValueError as error:
                self._fail(job, str(error))

    def _end(self, end: End) -> None:
        job = self._chooser.jobs.pop(end.request_id, None)
        if job is None:
            return
        self._loop.scheduler.finish(end.request_id, end.finish)
        if end.finish is Finish.STOP:
            self._keep(job)
        self._inbox.ended(end.request_id)
        self._board.finished(job, end.finish)

    def _commit(self, committed: Committed, now: int) -> None:
        job = self._chooser.jobs.get(committed.sequence.id)
        if job is None:
            return
        if job.error:
            self._loop.scheduler.cancel(job.sequence.id)
            self._fail(job, job.error)
            return
        sequence, finish = job.sequence, committed.finish
        first = len(sequence.produced) - len(committed.tokens)
        read = 0
        heard = True
        if not first:
            job.first_ns = job.first_ns or now
            self._cache.entered(sequence)
            if not job.before:
                heard = self._inbox.tell(job, PromptEvent(sequence.cached_rows, tuple(job.prompt_logprobs)))
            read = len(sequence.prompt) - sequence.cached_rows
        self._board.produced(now, len(committed.tokens), read)
        left = len(committed.tokens)
        for index, token in enumerate(committed.tokens, first):
            left -= 1
            logprob = job.chosen.pop(index, None)
            heard = heard and self._inbox.tell(
                job, TokenEvent(token, logprob, None if left else finish), last=not left and finish is not None
            )
            job.told += heard
        if finish is None and heard:
            return
        del self._chooser.jobs[sequence.id]
        if finish is None:
            # The inbox has been closed meanwhile: nobody is left to hear the rest.
            self._loop.scheduler.cancel(sequence.id)
            finish = Finish.CANCELLED
        else:
            self._keep(job)
        self._board.finished(job, finish)

    def _fail(self, job: Job, why: str) -> None:
        """End one job alone, without a finish."""
        del self._chooser.jobs[job.sequence.id]
        self._inbox.tell(job, FailedEvent(why), last=True)
        self._board.finished(job, Finish.CANCELLED)

    def _keep(self, job: Job) -> None:
        """Have every stage keep what it holds of a stream that ends, where another prompt may begin the same way.

        The last token of a reply has not run, or may not be counted on: its row is left out.
        """
        if not job.sequence.produced or job.sequence.every_row:
            return
        kept = self._cache.add((*job.sequence.prompt, *job.sequence.produced[:-1]))
        if kept is None:
            return
        key, dropped = kept
        self._loop.scheduler.cache(CacheOp(CacheAction.SAVE, job.sequence.id, key))
        for old in dropped:
            self._loop.scheduler.cache(CacheOp(CacheAction.DROP, 0, old))
