"""The plan (wire.md 7): what every stage does in one round, as a value and as bytes.

Encoder and decoder judge by the same rules, all that the plan alone can tell. What needs a stage's slots (open streams,
generations, positions, capacities) is judged in stage/slots.py with the same errors.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ropeway.wire.entries import CacheAction, CacheOp, Op, Returns, StreamEntry
from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.frames import Payload
from ropeway.wire.plan_rules import (
    CACHE_BYTES,
    ENTRY_BYTES,
    FIXED_BYTES,
    judge_cache,
    judge_cuts,
    judge_entries,
    judge_listed,
    judge_tokens,
)
from ropeway.wire.prefix import PREFIX_MAGIC, PROTOCOL, Message, judge_least, judge_prefix, judge_size, reserved

_FIXED: Final = struct.Struct("<IHBBIIIIII")
_ENTRY: Final = struct.Struct("<7I")
"""id, op (its three reserved bytes are the upper 24 bits), first, rows, accepted, resume, generation."""
_CACHE: Final = struct.Struct("<II16s")
"""op (reserved bytes likewise), stream, key."""

_OPS: Final = {int(op): op for op in Op}
_ACTIONS: Final = {int(action): action for action in CacheAction}
_RETURNS: Final = {int(returns): returns for returns in Returns}


@dataclass(frozen=True, slots=True)
class Plan:
    """One round: stream entries ascending by id, part boundaries, token ids, cache operations, and what comes back.

    `cuts` are row offsets where a new part begins; `tokens` are empty or one id a row; `listed` has one count an entry
    where `returns` is LISTED and is empty otherwise.
    """

    entries: tuple[StreamEntry, ...] = ()
    cuts: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    cache: tuple[CacheOp, ...] = ()
    returns: Returns = Returns.LAST
    listed: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the round, all entries together."""
        return sum(entry.rows for entry in self.entries)

    @property
    def is_keepalive(self) -> bool:
        """No stream and no cache operation: only a sign of life."""
        return not self.entries and not self.cache

    def part_ranges(self) -> list[tuple[int, int]]:
        """Half-open row ranges of the parts, in order; empty in a round without rows."""
        rows = self.rows
        if not rows:
            return []
        return list(pairwise((0, *self.cuts, rows)))

    def returns_for(self, index: int) -> int:
        """How many of the last rows of entry `index` come back to rank 0."""
        rows = self.entries[index].rows
        match self.returns:
            case Returns.LAST:
                return min(rows, 1)
            case Returns.ALL:
                return rows
            case Returns.LISTED:
                return self.listed[index]

    @property
    def returned_count(self) -> int:
        """How many rows of the round come back to rank 0."""
        return sum(self.returns_for(index) for index in range(len(self.entries)))

    def returned_rows(self) -> list[int]:
        """Indices in the round of the rows that come back to rank 0, in plan order.

        As long as the rows it names: judge the round against the stage's capacities first.
        """
        indices: list[int] = []
        end = 0
        for index, entry in enumerate(self.entries):
            end += entry.rows
            indices.extend(range(end - self.returns_for(index), end))
        return indices

    def returned_frames(self) -> list[int]:
        """Rows of each frame on the edge back to rank 0, part 0 first (wire.md 8).

        With returns ALL the round's parts, as on any boundary; otherwise one frame, or none where no row comes back.
        """
        if self.returns is Returns.ALL:
            return [stop - start for start, stop in self.part_ranges()]
        count = self.returned_count
        return [count] if count else []

    def encode(self) -> bytes:
        """The payload. Raises ProtocolError, by the name of the rule that the plan breaks."""
        _judge(self)
        try:
            pieces = [
                _FIXED.pack(
                    PREFIX_MAGIC,
                    PROTOCOL,
                    Message.PLAN,
                    0,
                    len(self.entries),
                    len(self.cuts),
                    len(self.tokens),
                    len(self.cache),
                    self.returns,
                    0,
                )
            ]
            for e in self.entries:
                pieces.append(_ENTRY.pack(e.stream, e.op, e.first, e.rows, e.accepted, e.resume, e.generation))
            if self.cuts or self.tokens:
                pieces.append(struct.pack(f"<{len(self.cuts) + len(self.tokens)}I", *self.cuts, *self.tokens))
            for c in self.cache:
                pieces.append(_CACHE.pack(c.action, c.stream, c.key))
            if self.listed:
                pieces.append(struct.pack(f"<{len(self.listed)}I", *self.listed))
        except struct.error as error:
            raise ProtocolError(ErrorCode.BAD_VALUE, f"a field of the plan does not fit: {error}") from None
        return b"".join(pieces)


def decode_plan(payload: Payload) -> Plan:
    """Decode a plan's payload; sizes are judged before anything is made.

    Raises ProtocolError in the order of wire.md 9: `truncated`, `prefix_magic`, `prefix_protocol`, `prefix_message`,
    `reserved_not_zero`, `too_long`, `bad_value`, `unknown_op`, then the rules of plan_rules.py.
    """
    size = len(payload)
    judge_least(size, FIXED_BYTES, "plan")
    magic, protocol, message, spare, streams, cuts, tokens, cache, returns, spare2 = _FIXED.unpack_from(payload)
    judge_prefix(magic, protocol, message, Message.PLAN)
    if spare:
        raise reserved("the prefix", spare, 7)
    if spare2:
        raise reserved("the plan", spare2, 28)
    listed = streams if returns == Returns.LISTED else 0
    cuts_at = FIXED_BYTES + ENTRY_BYTES * streams
    cache_at = cuts_at + 4 * (cuts + tokens)
    listed_at = cache_at + CACHE_BYTES * cache
    judge_size(size, listed_at + 4 * listed, "plan")

    view = memoryview(payload)
    entry_words = list(_ENTRY.iter_unpack(view[FIXED_BYTES:cuts_at]))
    cache_words = list(_CACHE.iter_unpack(view[cache_at:listed_at])) if cache else []
    _judge_tables(entry_words, cache_words, returns, cache_at)
    numbers = struct.unpack_from(f"<{cuts + tokens}I", payload, cuts_at) if cuts or tokens else ()
    plan = Plan(
        tuple([StreamEntry(w[0], _OPS[w[1]], w[2], w[3], w[4], w[5], w[6]) for w in entry_words]),
        numbers[:cuts],
        numbers[cuts:],
        tuple([CacheOp(_ACTIONS[action], stream, key) for action, stream, key in cache_words]),
        _RETURNS[returns],
        struct.unpack_from(f"<{listed}I", payload, listed_at) if listed else (),
    )
    _judge(plan)
    return plan


def _judge_tables(
    entries: list[tuple[int, ...]], cache: list[tuple[int, int, bytes]], returns: int, cache_at: int
) -> None:
    """Judge the tables' reserved bytes, then the enums (wire.md 9)."""
    for index, words in enumerate(entries):
        if words[1] > 0xFF:
            raise reserved(f"entry {index}", f"{words[1] >> 8:#08x}", FIXED_BYTES + ENTRY_BYTES * index + 5)
    for index, (action, _, _) in enumerate(cache):
        if action > 0xFF:
            raise reserved(f"cache operation {index}", f"{action >> 8:#08x}", cache_at + CACHE_BYTES * index + 1)
    if returns not in _RETURNS:
        raise ProtocolError(ErrorCode.BAD_VALUE, f"returns is {returns}, expected 0 to 2", 24)
    for index, words in enumerate(entries):
        if words[1] not in _OPS:
            raise ProtocolError(
                ErrorCode.UNKNOWN_OP,
                f"op of entry {index} is {words[1]}, expected 1 to {max(Op)}",
                FIXED_BYTES + ENTRY_BYTES * index + 4,
            )
    for index, (action, _, _) in enumerate(cache):
        if action not in _ACTIONS:
            raise ProtocolError(
                ErrorCode.UNKNOWN_OP,
                f"op of cache operation {index} is {action}, expected 1 to {max(CacheAction)}",
                cache_at + CACHE_BYTES * index,
            )


def _judge(plan: Plan) -> None:
    """Judge a plan by its rules, in the payload's order."""
    rows = judge_entries(plan.entries)
    cuts_at = FIXED_BYTES + ENTRY_BYTES * len(plan.entries)
    judge_cuts(plan.cuts, rows, cuts_at)
    judge_tokens(len(plan.tokens), rows)
    cache_at = cuts_at + 4 * (len(plan.cuts) + len(plan.tokens))
    judge_cache(plan.cache, plan.entries, cache_at)
    if plan.listed or plan.returns is Returns.LISTED:
        judge_listed(plan.listed, plan.returns, plan.entries, cache_at + CACHE_BYTES * len(plan.cache))
