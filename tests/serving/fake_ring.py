"""Rank 0's loop over a fake stage, which judges every round: limits, order, parts, and that nobody is passed over."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ropeway.serving.rounds import Scheduled
from ropeway.serving.scheduler import Committed, Scheduler
from ropeway.serving.sequence import Sequence, State
from ropeway.serving.slots import Prefix
from ropeway.stage.slots import SlotTable
from ropeway.wire import Op
from serving.fake_stage import FakeStage, reply_alone, token_of, values_of


@dataclass(frozen=True)
class Limits:
    parallel: int
    chunk: int
    max_rows: int
    context: int
    kv_rows: int
    groups: int = 1


@dataclass
class Ring:
    """Rank 0's loop over the fake stage; rounds run when they are planned and are committed when they are back."""

    limits: Limits
    lookup: Callable[[Sequence], Prefix | None] = lambda _: None
    propose: Callable[[Sequence, int], tuple[int, ...]] = lambda _, __: ()
    back: deque[tuple[Scheduled, list[int]]] = field(default_factory=deque)
    rounds: int = 0
    sequences: list[Sequence] = field(default_factory=list)
    newest: int = -1
    passed_over: Counter[int] = field(default_factory=Counter)
    """Rounds that went without a sequence, since it last took part in one."""

    def __post_init__(self) -> None:
        one = self.limits
        self.scheduler = Scheduler(
            one.parallel,
            one.chunk,
            one.max_rows,
            one.context,
            one.kv_rows,
            groups=one.groups,
            lookup=lambda sequence: self.lookup(sequence),
            propose=lambda sequence, most: self.propose(sequence, most),
        )
        self.stage = FakeStage(
            SlotTable(one.parallel, one.context, one.kv_rows, chunk=one.chunk, max_rows=one.max_rows)
        )

    def add(self, sequence: Sequence) -> None:
        self.scheduler.add(sequence)
        self.sequences.append(sequence)

    def send(self) -> Scheduled | None:
        running = {one.id for one in self.sequences if one.state is State.DECODING and one.produced}
        must = not self.back and not self.scheduler.idle
        scheduled = self.scheduler.next_plan()
        assert scheduled is not None or not must, "nothing is under way and nothing runs"
        if scheduled is not None:
            self.rounds += 1
            self.judge(scheduled)
            for number in running:
                self.passed_over[number] += 1
            for wanted in scheduled.wanted:
                self.passed_over[wanted.sequence.id] = 0
            assert max(self.passed_over.values(), default=0) < self.limits.parallel + self.limits.groups
            if self.limits.groups == 1 and self.limits.max_rows >= self.limits.parallel:
                assert running <= {wanted.sequence.id for wanted in scheduled.wanted}, "a decode had to wait"
            self.back.append((scheduled, self.stage.run(scheduled)))
            slots = {stream: slot.slot for stream, slot in self.stage.table.streams.items()}
            assert self.scheduler.slots == slots, "rank 0 and the stages do not mean the same slots"
            self.judge_parts(scheduled)
        return scheduled

    def judge(self, scheduled: Scheduled) -> None:
        held = sum(slot.position for slot in self.stage.table.streams.values())
        assert held <= self.scheduler.reserved_rows + sum(
            slot.position
            for stream, slot in self.stage.table.streams.items()
            if any(entry.stream == stream and not entry.rows for entry in scheduled.plan.entries)
        )
        assert self.scheduler.reserved_rows <= self.limits.kv_rows
        for entry in scheduled.plan.entries:
            if entry.op in (Op.OPEN, Op.RESUME):
                assert entry.stream > self.newest, "one prompt overtook another"
                self.newest = entry.stream
        assert self.scheduler.under_way <= (1 if self.limits.groups == 1 else 2 * self.limits.groups)

    def judge_parts(self, scheduled: Scheduled) -> None:
        """No part mixes prompts with decodes, and beside running decodes there is at most one of prompts."""
        decodes = {wanted.sequence.id for wanted in scheduled.wanted if len(wanted.sequence.produced)}
        slots = self.stage.table.streams
        kinds = []
        for part in self.stage.parts:
            is_decode = [any(slots[s].slot == span.slot for s in decodes) for span in part.spans]
            assert len(set(is_decode)) == 1
            kinds.append(is_decode[0])
        if any(kinds):
            assert kinds.count(False) <= 1

    def take(self) -> list[Committed]:
        """The oldest round is back: sample greedily, verify drafts."""
        scheduled, values = self.back.popleft()
        tokens: dict[int, list[int]] = {}
        for wanted in scheduled.wanted:
            rows = values[wanted.row : wanted.row + wanted.rows]
            known = [*wanted.sequence.prompt, *wanted.sequence.produced, *wanted.drafts]
            if wanted.sequence.state is not State.FINISHED:
                assert rows == values_of(known)[wanted.position : wanted.position + wanted.rows]
            if not wanted.sample:
                continue
            best = [token_of(value) for value in rows[-1 - len(wanted.drafts) :]]
            right = 0
            while right < len(wanted.drafts) and wanted.drafts[right] == best[right]:
                right += 1
            tokens[wanted.sequence.id] = best[: right + 1]
        committed = self.scheduler.commit(scheduled, tokens)
        for one in committed:
            assert one.sequence.produced[-len(one.tokens) :] == list(one.tokens)
            assert one.finish is one.sequence.finish
        return committed

    def step(self) -> list[Committed]:
        """Send what can be sent; take one round back."""
        while self.send() is not None:
            pass
        return self.take() if self.back else []

    def judge_end(self) -> None:
        assert self.stage.table.streams == {}
        assert self.stage.slots == {}
        assert self.scheduler.running == self.scheduler.waiting == self.scheduler.reserved_rows == 0
        assert self.scheduler.next_plan() is None

    def expected(self, sequence: Sequence) -> list[int]:
        limit = min(sequence.max_tokens, self.limits.context - len(sequence.prompt))
        return reply_alone(sequence.prompt, limit, sequence.stop_ids)
