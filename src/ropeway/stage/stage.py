"""One rank's engine and its slots: carries out what a plan asks of them. Knows nothing of connections."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ropeway.engines.base import Engine, EngineError, Logits, ReadsTokens
from ropeway.stage.slots import SlotTable
from ropeway.stage.work import Drop, Keep, Operation, Part, Release, Restore, Save, StageWork
from ropeway.wire import CacheAck, Plan


class Stage:
    """The layers of one rank with the streams that live on them. One thread calls it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.row_bytes = engine.boundary.row_bytes()
        self.forward_ns = 0
        """Nanoseconds in the engine since `begin`."""
        c = engine.capacities
        self._table = SlotTable(c.parallel, c.context, c.kv_rows, chunk=c.chunk, max_rows=c.max_rows)
        self._kept: dict[bytes, bytes] = {}
        self._acks: list[CacheAck] = []
        self._reader = engine if isinstance(engine, ReadsTokens) else None
        self._tokens: Sequence[int] = ()

    @property
    def held_rows(self) -> int:
        """Positions that the open streams hold."""
        return sum(slot.position for slot in self._table.streams.values())

    @property
    def kept_bytes(self) -> int:
        """Bytes of the states kept for the prompt cache."""
        return sum(map(len, self._kept.values()))

    def begin(self, plan: Plan) -> StageWork:
        """Judge a plan and do what comes before its rows. Raises ProtocolError (the plan's fault) or EngineError."""
        self.forward_ns = 0
        self._tokens = plan.tokens
        work = self._table.apply(plan)
        self._acks = [ack for operation in work.before if (ack := self._do(operation)) is not None]
        return work

    def finish(self, work: StageWork) -> tuple[CacheAck, ...]:
        """Do what comes after the rows; the acknowledgements of this plan's saves."""
        self._acks += [ack for save in work.after if (ack := self._do(save)) is not None]
        return tuple(self._acks)

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        """The embedding rows of a part's tokens."""
        started = time.perf_counter_ns()
        self.engine.embed(tokens, out)
        self.forward_ns += time.perf_counter_ns() - started

    def forward(self, part: Part, rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None) -> None:
        """Run a part; `out` gets every row, or just the rows `wanted` where this stage has the last layer."""
        started = time.perf_counter_ns()
        self._tell(part)
        self.engine.forward(part.spans, rows, out, wanted)
        self.forward_ns += time.perf_counter_ns() - started

    def forward_head(self, part: Part, rows: memoryview) -> Logits:
        """Run a part and the head over the rows that the plan wants back: [returned, vocabulary]."""
        started = time.perf_counter_ns()
        self._tell(part)
        logits = self.engine.forward_head(part.spans, rows, part.returns)
        self.forward_ns += time.perf_counter_ns() - started
        return logits

    def head(self, part: Part, rows: memoryview) -> Logits:
        """The head over a part's rows that came back: [returned, vocabulary]."""
        started = time.perf_counter_ns()
        logits = self.engine.head(part.spans, rows, part.returns)
        self.forward_ns += time.perf_counter_ns() - started
        return logits

    def _tell(self, part: Part) -> None:
        """Give the engine a part's token ids, where the plan has some."""
        if self._reader is not None and self._tokens:
            self._reader.take_tokens(self._tokens[part.start : part.start + part.rows])

    def _do(self, operation: Operation) -> CacheAck | None:
        match operation:
            case Keep(slot, length):
                self.engine.keep(slot, length)
            case Release(slot):
                self.engine.release(slot)
            case Restore(slot, key):
                state = self._kept.get(key)
                if state is None:
                    raise EngineError(f"the state under key {key.hex()} could not be kept, yet a plan restores it")
                self.engine.restore(slot, state)
            case Save(slot, key):
                try:
                    self._kept[key] = self.engine.save(slot)
                except (EngineError, MemoryError):
                    return CacheAck(key, False)
                return CacheAck(key, True)
            case Drop(key):
                self._kept.pop(key, None)
        return None
