"""Rank 0's loop: launch rounds, land them in order, choose tokens, commit. The heart of serving.

`launch` sends a plan and runs rank 0's own layers; `land` takes the rows that came round, or the tokens. Several
rounds may be under way (the scheduler's groups). Knows slots, positions and rows; what a token means is not its
business.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ropeway.engines.base import Logits
from ropeway.serving.rounds import Scheduled, Wanted
from ropeway.serving.scheduler import Committed, Scheduler
from ropeway.stage.stage import Stage
from ropeway.stage.work import Part, StageWork
from ropeway.transport import Ring
from ropeway.types import SamplerAt
from ropeway.wire import CacheAck, CacheAction, Done, Returns


class Chooser(Protocol):
    """Who turns logits into tokens."""

    def choose(self, wanted: Wanted, logits: Logits) -> Items[int]:
        """The accepted drafts and the token after them; `logits` are of the last 1 + len(drafts) rows wanted."""
        ...

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        """Logits of rows `offset`.. of those wanted, for a sequence with `every_row`; called before `choose`."""
        ...


@dataclass(slots=True)
class RoundRecord:
    """Where one round's time went, in nanoseconds of rank 0's clock; `dones` fill in as the stages report."""

    number: int
    rows: int
    parts: int
    launched_ns: int
    sent_ns: int = 0
    """Rank 0 had run its layers for the last part."""
    back_ns: int = 0
    """The last rows (or the tokens) had come back."""
    landed_ns: int = 0
    """Tokens were chosen and committed."""
    own_ns: int = 0
    """In rank 0's engine, the head left out."""
    head_ns: int = 0
    wait_send_ns: int = 0
    dones: dict[int, Done] = field(default_factory=dict)

    def wire_ns(self, world: int) -> int | None:
        """The round less every stage's forward, for a round of one part; None until all stages have reported, and where
        there is no wire."""
        if world == 1 or len(self.dones) < world - 1 or self.parts != 1:
            return None
        return self.back_ns - self.launched_ns - self.own_ns - sum(d.forward_ns for d in self.dones.values())


@dataclass(slots=True)
class _UnderWay:
    scheduled: Scheduled
    work: StageWork
    record: RoundRecord
    logits: dict[int, Logits] = field(default_factory=dict)


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
        history: int = 256,
    ) -> None:
        self.scheduler = scheduler
        self.records: deque[RoundRecord] = deque(maxlen=history)
        self._stage = stage
        self._ring = ring
        self._world = 1 if ring is None else ring.world
        self._chooser = chooser
        self._sampler = sampler
        self._on_acks = on_acks
        self._on_round = on_round
        self._under_way: deque[_UnderWay] = deque()
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
        plan, stage = scheduled.plan, self._stage
        waited_ns = 0 if self._ring is None else self._ring.waits.send_ns
        if self._ring is None:
            self._lone_rounds += 1
            number = self._lone_rounds
        else:
            number = self._ring.send_plan(plan)
        work = stage.begin(plan)
        record = RoundRecord(number, len(scheduled.tokens), len(work.parts), started)
        under_way = _UnderWay(scheduled, work, record)
        for index, part in enumerate(work.parts):
            rows = self._scratch[: part.rows * stage.row_bytes]
            stage.embed(scheduled.tokens[part.start : part.start + part.rows], rows)
            if self._ring is None:
                under_way.logits[index] = stage.forward_head(part, rows)
            else:
                out = self._ring.send_buffer(len(rows))
                stage.forward(part, rows, out)
                self._ring.send_rows(number, index, part.rows, out)
        acks = stage.finish(work)
        if acks:
            self._on_acks(0, acks)
        record.own_ns = stage.forward_ns
        record.sent_ns = time.perf_counter_ns()
        if self._ring is not None:
            record.wait_send_ns = self._ring.waits.send_ns - waited_ns
        self.records.append(record)
        self._under_way.append(under_way)
        self._on_round(scheduled, work)

    def _land(self, under_way: _UnderWay) -> list[Committed]:
        record = under_way.record
        if self._ring is not None and self._sampler is SamplerAt.LAST:
            chosen = self._receive_tokens(under_way)
        else:
            chosen = self._choose(under_way)
        committed = self.scheduler.commit(under_way.scheduled, chosen)
        record.landed_ns = time.perf_counter_ns()
        self.collect()
        if any(op.action is CacheAction.SAVE for op in under_way.scheduled.plan.cache):
            self._await_dones(record)
        return committed

    def _await_dones(self, record: RoundRecord) -> None:
        """Wait until every stage has said whether it kept its part: the next plan may build on it."""
        while self._ring is not None and len(record.dones) < self._world - 1:
            self._take_in(*self._ring.next_done())

    def _receive_tokens(self, under_way: _UnderWay) -> dict[int, Items[int]]:
        ring, record = self._ring, under_way.record
        assert ring is not None
        chosen: dict[int, Items[int]] = {}
        if under_way.scheduled.wanted:
            chosen = {token.stream: (token.token,) for token in ring.receive_tokens(record.number).tokens}
        record.back_ns = time.perf_counter_ns()
        return chosen

    def _choose(self, under_way: _UnderWay) -> dict[int, Items[int]]:
        """Take in the returned rows part by part and choose each sequence's tokens."""
        last: dict[int, list[Logits]] = {}
        at = 0
        for part, logits in self._returned(under_way):
            stop = at + len(part.returns)
            for wanted in under_way.scheduled.wanted:
                first, end = max(wanted.row, at), min(wanted.row + wanted.rows, stop)
                if first >= end:
                    continue
                mine = logits[first - at : end - at]
                if wanted.sequence.every_row:
                    self._chooser.prompt_rows(wanted, first - wanted.row, mine)
                if wanted.sample:
                    last.setdefault(wanted.sequence.id, []).append(mine[-1 - len(wanted.drafts) :])
            at = stop
        return {
            wanted.sequence.id: self._chooser.choose(wanted, _joined(last[wanted.sequence.id], 1 + len(wanted.drafts)))
            for wanted in under_way.scheduled.wanted
            if wanted.sample and wanted.sequence.finish is None
        }

    def _returned(self, under_way: _UnderWay) -> Iterator[tuple[Part, Logits]]:
        """The parts that have rows wanted, with those rows' logits; one part's logits are made at a time."""
        ring, stage, record = self._ring, self._stage, under_way.record
        parts = [(index, part) for index, part in enumerate(under_way.work.parts) if part.returns]
        if ring is None:
            record.back_ns = time.perf_counter_ns()
            for index, part in parts:
                yield part, under_way.logits.pop(index)
            return
        every = under_way.scheduled.plan.returns is Returns.ALL
        rows = memoryview(b"")
        at = 0
        for index, part in parts:
            if every or not at:
                rows = ring.receive_rows(record.number, index if every else 0)
                record.back_ns = time.perf_counter_ns()
                at = 0
            stop = at + len(part.returns) * stage.row_bytes
            before = stage.forward_ns
            logits = stage.head(part, rows[at:stop])
            record.head_ns += stage.forward_ns - before
            at = stop
            if every or index == parts[-1][0]:
                ring.release_rows()
            yield part, logits


def _joined(pieces: list[Logits], rows: int) -> Logits:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)[-rows:]
