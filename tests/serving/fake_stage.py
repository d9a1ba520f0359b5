"""A stage without a model: a row's value is a function of every id that its stream has seen, so that a row too many,
too few, or in the wrong place changes the text. It runs a real SlotTable, and plans go through the wire's codec first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ropeway.serving.rounds import Scheduled
from ropeway.stage.slots import SlotTable
from ropeway.stage.work import Drop, Keep, Operation, Part, Release, Restore, Save
from ropeway.wire import decode_plan

VOCABULARY = 61


def row_value(before: int, token: int) -> int:
    """The value of a row after a row of value `before` (0 at the start)."""
    return (before * 6364136223846793005 + token * 1442695040888963407 + 12345) % (1 << 61)


def token_of(value: int) -> int:
    return (value >> 20) % VOCABULARY


def values_of(tokens: Iterable[int]) -> list[int]:
    values = [0]
    for token in tokens:
        values.append(row_value(values[-1], token))
    return values[1:]


def reply_alone(prompt: tuple[int, ...], limit: int, stop_ids: frozenset[int]) -> list[int]:
    """What a prompt gets when nothing else is there."""
    value, reply = values_of(prompt)[-1], list[int]()
    while len(reply) < limit and not (reply and reply[-1] in stop_ids):
        reply.append(token_of(value))
        value = row_value(value, reply[-1])
    return reply


@dataclass
class FakeStage:
    """Runs rounds, in order."""

    table: SlotTable
    slots: dict[int, list[int]] = field(default_factory=dict)
    kept: dict[bytes, list[int]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    """Of the last round."""

    def run(self, scheduled: Scheduled) -> list[int]:
        """The values of the rows that return, in plan order."""
        plan = decode_plan(scheduled.plan.encode())
        assert plan == scheduled.plan
        assert not plan.tokens or plan.tokens == scheduled.tokens
        work = self.table.apply(plan)
        for operation in work.before:
            self.operate(operation)
        returned: list[int] = []
        assert len(scheduled.tokens) == plan.rows == sum(part.rows for part in work.parts)
        for part in work.parts:
            values: list[int] = []
            assert len({span.slot for span in part.spans}) == len(part.spans)
            for span in part.spans:
                state = self.slots.setdefault(span.slot, [])
                assert len(state) == span.first
                for _ in range(span.rows):
                    token = scheduled.tokens[part.start + len(values)]
                    state.append(row_value(state[-1] if state else 0, token))
                    values.append(state[-1])
            returned += [values[row] for row in part.returns]
        for operation in work.after:
            self.operate(operation)
        self.parts = list(work.parts)
        assert len(returned) == plan.returned_count
        return returned

    def operate(self, operation: Operation) -> None:
        match operation:
            case Keep(slot, length):
                assert length < len(self.slots[slot])
                del self.slots[slot][length:]
            case Release(slot):
                del self.slots[slot]
            case Restore(slot, key):
                assert slot not in self.slots
                self.slots[slot] = list(self.kept[key])
            case Save(slot, key):
                self.kept[key] = list(self.slots[slot])
            case Drop(key):
                del self.kept[key]
