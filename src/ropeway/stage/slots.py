"""Where streams live on a stage: slots with generations, and what a plan asks of them. Every rank runs the same table.

Pure: the standard library alone. A plan is judged whole before anything changes, so a bad one leaves the table as it
was. Knows nothing of engines but the operations that it lists for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ropeway.stage.work import Drop, Keep, Operation, Release, Restore, Save, StageWork, cut_parts
from ropeway.wire import CacheAction, CacheOp, ErrorCode, Op, Plan, ProtocolError, StreamEntry

UNLIMITED: Final = 0xFFFFFFFF
"""Rows a part or a round where the caller judges them elsewhere."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A stream's place: engine slot, generation, positions held, and how many of them its last round ran."""

    slot: int
    generation: int
    position: int
    last_rows: int


class SlotTable:
    """The open streams of one stage and the keys of what it keeps for the prompt cache.

    `parallel` streams at once, `context` positions a stream, `kv_rows` positions in all; `chunk` rows a part and
    `max_rows` rows a round at most.
    """

    def __init__(
        self, parallel: int, context: int, kv_rows: int, *, chunk: int = UNLIMITED, max_rows: int = UNLIMITED
    ) -> None:
        self._parallel = parallel
        self._context = context
        self._kv_rows = kv_rows
        self._chunk = chunk
        self._max_rows = max_rows
        self._open: dict[int, Slot] = {}
        self._kept: dict[bytes, int] = {}

    @property
    def streams(self) -> dict[int, Slot]:
        """The open streams by id; a copy."""
        return dict(self._open)

    @property
    def kept(self) -> dict[bytes, int]:
        """Positions of what is kept, by key; a copy."""
        return dict(self._kept)

    def apply(self, plan: Plan) -> StageWork:
        """Take a plan that `decode_plan` has let through, and say what it asks of the engine.

        Slots that a plan frees serve the streams that it opens, the lowest first; restores come before drops, and a
        stream that a plan closes is saved before its slot is released. Raises ProtocolError `stream_unknown`,
        `stale_generation`, `accepted_range`, `first_position`, `unknown_key`, `resume_range` or `over_capacity`.
        """
        opened = dict(self._open)
        released: list[Operation] = []
        kept_back: list[Operation] = []
        closed: dict[int, Slot] = {}
        starting: list[tuple[StreamEntry, int]] = []
        for index, entry in enumerate(plan.entries):
            at = 32 + 28 * index
            if entry.op is Op.OPEN or entry.op is Op.RESUME:
                if entry.stream in self._open:
                    raise _bad(ErrorCode.STREAM_UNKNOWN, entry, "is open already", at)
                starting.append((entry, at))
                continue
            slot = self._known(entry, at)
            if entry.op is Op.CONTINUE:
                position = _rolled_back(slot, entry, at)
                generation = slot.generation
                if position < slot.position:
                    kept_back.append(Keep(slot.slot, position))
                    generation += 1
                opened[entry.stream] = self._run(slot.slot, generation, entry, at)
            else:
                closed[entry.stream] = opened.pop(entry.stream)
                released.append(Release(slot.slot))

        if len(opened) + len(starting) > self._parallel:
            raise ProtocolError(
                ErrorCode.OVER_CAPACITY,
                f"the plan leaves {len(opened) + len(starting)} streams open, at most {self._parallel}",
            )
        restored = self._start(plan, starting, opened)
        self._judge_rows(plan, opened)
        kept, early, after, drops = self._cache(plan.cache, opened, closed)
        work = StageWork(
            (*early, *released, *kept_back, *restored, *drops),
            cut_parts(plan, {stream: slot.slot for stream, slot in opened.items()}),
            tuple(after),
        )
        self._open = opened
        self._kept = kept
        return work

    def _known(self, entry: StreamEntry, at: int) -> Slot:
        slot = self._open.get(entry.stream)
        if slot is None:
            raise _bad(ErrorCode.STREAM_UNKNOWN, entry, "is not open", at)
        if entry.generation != slot.generation:
            raise _bad(
                ErrorCode.STALE_GENERATION,
                entry,
                f"has generation {entry.generation}, the stage's is {slot.generation}",
                at + 24,
            )
        return slot

    def _run(self, slot: int, generation: int, entry: StreamEntry, at: int) -> Slot:
        """The slot after the entry's rows."""
        end = entry.first + entry.rows
        if end > self._context:
            raise _bad(ErrorCode.OVER_CAPACITY, entry, f"ends at position {end}, at most {self._context}", at + 8)
        return Slot(slot, generation, end, entry.rows)

    def _start(
        self, plan: Plan, starting: Sequence[tuple[StreamEntry, int]], opened: dict[int, Slot]
    ) -> list[Operation]:
        """Give slots to the streams that a plan opens or resumes; what that asks of the engine."""
        restored: list[Operation] = []
        if not starting:
            return restored
        keys = {op.stream: op.key for op in plan.cache if op.action is CacheAction.RESTORE}
        taken = {slot.slot for slot in opened.values()}
        free = (slot for slot in range(self._parallel) if slot not in taken)
        for (entry, at), number in zip(starting, free, strict=False):
            generation = 0
            if entry.op is Op.RESUME:
                key = keys[entry.stream]
                length = self._kept.get(key)
                if length is None:
                    raise _bad(ErrorCode.UNKNOWN_KEY, entry, f"resumes from key {key.hex()}, which is not kept", at)
                if entry.resume > length:
                    raise _bad(
                        ErrorCode.RESUME_RANGE, entry, f"has resume {entry.resume}, its key holds {length}", at + 20
                    )
                if entry.first != entry.resume:
                    raise _bad(
                        ErrorCode.FIRST_POSITION, entry, f"has first {entry.first} after resume {entry.resume}", at + 8
                    )
                restored.append(Restore(number, key))
                if entry.resume < length:
                    restored.append(Keep(number, entry.resume))
                generation = entry.generation + 1
            opened[entry.stream] = self._run(number, generation, entry, at)
        return restored

    def _judge_rows(self, plan: Plan, opened: dict[int, Slot]) -> None:
        held = sum(slot.position for slot in opened.values())
        largest = max((stop - start for start, stop in plan.part_ranges()), default=0)
        for what, count, limit in (
            ("a part has", largest, self._chunk),
            ("the round has", plan.rows, self._max_rows),
            ("the streams hold", held, self._kv_rows),
        ):
            if count > limit:
                raise ProtocolError(ErrorCode.OVER_CAPACITY, f"{what} {count} rows, at most {limit}")

    def _cache(
        self, ops: Sequence[CacheOp], opened: dict[int, Slot], closed: dict[int, Slot]
    ) -> tuple[dict[bytes, int], list[Operation], list[Save], list[Operation]]:
        """The keys after the plan, the saves of streams that it closes, those of the others, and the drops."""
        if not ops:
            return self._kept, [], [], []
        kept = dict(self._kept)
        early: list[Operation] = []
        after: list[Save] = []
        drops: list[Operation] = []
        for op in ops:
            if op.action is CacheAction.SAVE:
                slot = opened.get(op.stream) or closed.get(op.stream)
                if slot is None:
                    raise ProtocolError(
                        ErrorCode.STREAM_UNKNOWN, f"the plan saves stream {op.stream}, which is not open"
                    )
                if op.key in self._kept or op.key in kept:
                    raise ProtocolError(ErrorCode.UNKNOWN_KEY, f"key {op.key.hex()} is kept already")
                (early if op.stream in closed else after).append(Save(slot.slot, op.key))
                kept[op.key] = slot.position
            elif op.action is CacheAction.DROP:
                if op.key not in self._kept or op.key not in kept:
                    raise ProtocolError(ErrorCode.UNKNOWN_KEY, f"the plan drops key {op.key.hex()}, which is not kept")
                drops.append(Drop(op.key))
                del kept[op.key]
        return kept, early, after, drops


def _rolled_back(slot: Slot, entry: StreamEntry, at: int) -> int:
    """The position that `accepted` leaves, which must be the entry's first."""
    if entry.accepted > slot.last_rows:
        raise _bad(
            ErrorCode.ACCEPTED_RANGE,
            entry,
            f"has accepted {entry.accepted}, its last round ran {slot.last_rows} rows",
            at + 16,
        )
    position = slot.position - slot.last_rows + entry.accepted
    if entry.first != position:
        raise _bad(ErrorCode.FIRST_POSITION, entry, f"has first {entry.first}, the stage is at {position}", at + 8)
    return position


def _bad(code: ErrorCode, entry: StreamEntry, what: str, at: int) -> ProtocolError:
    return ProtocolError(code, f"stream {entry.stream} ({entry.op.label}) {what}", at)
