"""Rank 0's loop: launch rounds, land them in order, choose tokens, commit. The heart of serving.

`launch` sends a plan and runs rank 0's own layers; `land` takes the rows that came round, or the tokens. Several
rounds may be under way (the scheduler's groups). Knows slots, positions and rows; what a token means is not its
business.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Final, Protocol

import numpy as np

from ropeway.engines.base import Logits
from ropeway.engines.rows import side_by_side
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.rounds import Scheduled, Wanted
from ropeway.serving.scheduler import Committed, Scheduler
from ropeway.serving.underway import RoundRecord as RoundRecord
from ropeway.serving.underway import UnderWay
from ropeway.stage.stage import Stage
from ropeway.stage.work import Part, StageWork
from ropeway.transport import Ring
from ropeway.types import SamplerAt
from ropeway.wire import CacheAck, CacheAction, Done, Returns

HISTORY: Final = 256
"""Rounds whose records are kept."""


class Chooser(Protocol):
    """Who turns logits into tokens."""

    def choose(self, wanted: Wanted, logits: Logits) -> Items[int]:
        """The accepted drafts and the token after them; `logits` are of the last 1 + len(drafts) rows wanted."""
        ...

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        """Logits of a prompt's rows `offset`.. of those wanted, for a sequence with `every_row`; before `choose`."""
        ...


class Loop:
    """The rounds of one ring (or of a lone stage, with `ring` None). One thread calls it."""

    def __init__(
        self,
        stage: Stage,
        ring: Ring | None,
        scheduler: Scheduler,
        chooser: Chooser,
        *,
        sampler: SamplerAt = SamplerAt.FIRST,
        on_acks: Callable[[int, Items[CacheAck]], None] = lambda _rank, _acks: None,
        on_round: Callable[[Scheduled, StageWork], None] = lambda _scheduled, _work: None,
        drafting: Drafting | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.records: deque[RoundRecord] = deque(maxlen=HISTORY)
        self._stage = stage
        self._ring = ring
        self._world = 1 if ring is None else ring.world
        self._chooser = chooser
        self._sampler = sampler
        self._on_acks = on_acks
        self._on_round = on_round
        self._drafting = drafting
        self._under_way: deque[UnderWay] = deque()
        self._scratch = memoryview(bytearray(stage.engine.capacities.chunk * stage.row_bytes))
        self._lone_rounds = 0

    def step(self) -> list[Committed]:
        """Launch what the scheduler allows, then land the oldest round. Empty when there was nothing to do.

        Raises RingLost, RingStopped or EngineError; the loop is of no use after that.
        """
        while (scheduled := self.scheduler.next_plan()) is not None:
            self._launch(scheduled)
        if not self._under_way:
            return []
        self.collect()  # here, where the ring has work, and not between two rounds
        if self._drafting is not None and self._ring is not None:
            self._drafting.waiting(self._under_way[0].scheduled)
        return self._land(self._under_way.popleft())

    @property
    def held_rows(self) -> int:
        """Positions that the open streams hold, on every stage alike."""
        return self._stage.held_rows

    def collect(self) -> None:
        """Take in the stages' done frames that have come."""
        if self._ring is None:
            return
        for rank, number, done in self._ring.dones():
            self._take_in(rank, number, done)

    def _take_in(self, rank: int, number: int, done: Done) -> None:
        for record in reversed(self.records):
            if record.number == number:
                record.dones[rank] = done
                break
        if done.acks:
            self._on_acks(rank, done.acks)

    def _launch(self, scheduled: Scheduled) -> None:
        started = time.perf_counter_ns()
        stage, ring = self._stage, self._ring
        waited_ns = 0 if ring is None else ring.waits.send_ns
        if ring is None:
            self._lone_rounds += 1
            number = self._lone_rounds
        else:
            number = ring.send_plan(scheduled.plan)
        work = stage.begin(scheduled.plan)
        alone = not self._under_way and not (self.records and self.records[-1].unseen)
        record = RoundRecord(number, len(scheduled.tokens), len(work.parts), started, alone=alone)
        if self._under_way:
            self._under_way[-1].record.alone = False
        under_way = UnderWay(scheduled, work, record, self._frames(scheduled, work))
        self.records.append(record)
        self._under_way.append(under_way)
        for index, part in enumerate(work.parts):
            self._make_room()
            self._run(under_way, index, part)
        acks = stage.finish(work)
        if acks:
            self._on_acks(0, acks)
        record.sent_ns = time.perf_counter_ns()
        if ring is not None:
            record.wait_send_ns = ring.waits.send_ns - waited_ns
        self._on_round(scheduled, work)

    def _frames(self, scheduled: Scheduled, work: StageWork) -> deque[tuple[int, ...]]:
        """The frames of rows that will come back, as the wire has them (wire.md 8)."""
        if self._ring is None or self._sampler is SamplerAt.LAST:
            return deque()
        if scheduled.plan.returns is Returns.ALL:
            return deque((index,) for index in range(len(work.parts)))
        parts = tuple(index for index, part in enumerate(work.parts) if part.returns)
        return deque([parts] if parts else [])

    def _run(self, under_way: UnderWay, index: int, part: Part) -> None:
        """Rank 0's layers over one part, and send it on."""
        stage, ring, record = self._stage, self._ring, under_way.record
        before = stage.forward_ns
        rows = self._scratch[: part.rows * stage.row_bytes]
        stage.embed(under_way.scheduled.tokens[part.start : part.start + part.rows], rows)
        if ring is None:
            logits = stage.forward_head(part, rows)
            record.own_ns += stage.forward_ns - before
            record.back_ns = time.perf_counter_ns()
            self._take_logits(under_way, logits)
            return
        out = ring.send_buffer(len(rows))
        stage.forward(part, rows, out)
        record.own_ns += stage.forward_ns - before
        ring.send_rows(record.number, index, part.rows, out)
        under_way.sent += 1
        under_way.unread += 1

    def _make_room(self) -> None:
        """Read what comes back while the ring has all under way that it can hold unread: it would wait for itself.

        Two parts a boundary: that many are out of the way before the rank behind one has to read.
        """
        if self._ring is None:
            return
        while sum(round_.unread for round_ in self._under_way) >= 2 * self._world:
            oldest = next((round_ for round_ in self._under_way if round_.frames), None)
            if oldest is None or not oldest.due:
                return
            self._receive_frame(oldest)

    def _land(self, under_way: UnderWay) -> list[Committed]:
        record = under_way.record
        if self._ring is not None and self._sampler is SamplerAt.LAST:
            chosen = self._receive_tokens(under_way)
        else:
            while under_way.frames:
                self._receive_frame(under_way)
            chosen = self._choose(under_way)
        committed = self.scheduler.commit(under_way.scheduled, chosen)
        record.landed_ns = time.perf_counter_ns()
        if self._drafting is not None:
            self._drafting.landed(under_way.scheduled, committed, record)
        if any(op.action is CacheAction.SAVE for op in under_way.scheduled.plan.cache):
            self._await_dones(record)
        return committed

    def _await_dones(self, record: RoundRecord) -> None:
        """Wait until every stage has said whether it kept its part: the next plan may build on it."""
        while self._ring is not None and len(record.dones) < self._world - 1:
            self._take_in(*self._ring.next_done())

    def _receive_tokens(self, under_way: UnderWay) -> dict[int, Items[int]]:
        ring, record = self._ring, under_way.record
        assert ring is not None
        if not under_way.scheduled.wanted:
            return {}
        assert not any(wanted.drafts for wanted in under_way.scheduled.wanted), "the last rank verifies no drafts"
        asked = time.perf_counter_ns()
        tokens = ring.receive_tokens(record.number).tokens
        record.back_ns = time.perf_counter_ns()
        record.wait_rows_ns += record.back_ns - asked
        return {token.stream: (token.token,) for token in tokens}

    def _receive_frame(self, under_way: UnderWay) -> None:
        """The next frame of rows that came round, and the head over them; one part's logits are made at a time."""
        ring, stage, record = self._ring, self._stage, under_way.record
        assert ring is not None
        parts = under_way.frames.popleft()
        asked = time.perf_counter_ns()
        rows = ring.receive_rows(record.number, parts[0] if under_way.every else 0)
        record.back_ns = time.perf_counter_ns()
        record.wait_rows_ns += record.back_ns - asked
        at = 0
        for index in parts:
            part = under_way.work.parts[index]
            stop = at + len(part.returns) * stage.row_bytes
            before = stage.forward_ns
            logits = stage.head(part, rows[at:stop])
            record.head_ns += stage.forward_ns - before
            self._share_rows(under_way, rows[at:stop], len(logits))
            at = stop
            self._take_logits(under_way, logits)
        ring.release_rows()
        under_way.unread -= 1 if under_way.every else len(under_way.work.parts)

    def _share_rows(self, under_way: UnderWay, rows: memoryview, count: int) -> None:
        """Give the next returned rows to a drafter that reads them."""
        if self._drafting is None or not self._drafting.needs_rows:
            return
        rows = side_by_side(rows, count, self._stage.engine.boundary.planes)
        at, stop, size = under_way.taken, under_way.taken + count, self._stage.row_bytes
        for wanted in under_way.scheduled.wanted:
            first, end = max(wanted.row, at), min(wanted.row + wanted.rows, stop)
            if first < end and wanted.sequence.finish is None:
                mine = rows[(first - at) * size : (end - at) * size]
                self._drafting.take_rows(wanted.sequence, wanted.position + first - wanted.row, mine, end - first)

    def _take_logits(self, under_way: UnderWay, logits: Logits) -> None:
        """Share out the logits of the next returned rows."""
        at, stop = under_way.taken, under_way.taken + len(logits)
        under_way.taken = stop
        for wanted in under_way.scheduled.wanted:
            first, end = max(wanted.row, at), min(wanted.row + wanted.rows, stop)
            sequence = wanted.sequence
            if first >= end or sequence.finish is not None:
                continue
            mine = logits[first - at : end - at]
            if sequence.every_row and wanted.position < len(sequence.prompt):
                self._chooser.prompt_rows(wanted, first - wanted.row, mine)
            if wanted.sample:
                under_way.last.setdefault(sequence.id, []).append(mine[-1 - len(wanted.drafts) :])

    def _choose(self, under_way: UnderWay) -> dict[int, Items[int]]:
        """Every sequence's tokens; nothing for those that have ended meanwhile."""
        return {
            wanted.sequence.id: self._chooser.choose(
                wanted, _joined(under_way.last[wanted.sequence.id], 1 + len(wanted.drafts))
            )
            for wanted in under_way.scheduled.wanted
            if wanted.sample and wanted.sequence.finish is None
        }


def _joined(pieces: list[Logits], rows: int) -> Logits:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)[-rows:]
