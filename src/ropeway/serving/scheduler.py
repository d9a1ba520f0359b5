"""Continuous batching: which sequences take part in the next round, and what became of the last one.

Pure: the standard library alone; no clock, no randomness, no text. Running decodes come first. Prompts follow: beside
decodes at most one part's worth a round, otherwise as much as a round may hold. With groups several rounds may be
under way: each plan then takes one group of the sequences, of those that have their token back, and prompts have rounds
of their own between those of the groups. A group is a run of neighbouring slots: engines compute those in one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

from ropeway.serving.prompts import Lookup, PromptQueue
from ropeway.serving.rounds import Scheduled, Turn, build
from ropeway.serving.sequence import Finish, Sequence, State
from ropeway.serving.slots import Stream
from ropeway.wire import CacheAction, CacheOp, Op, StreamEntry

Propose = Callable[[Sequence, int], Items[int]]
"""Tokens that may follow what a sequence has, at most so many."""


Cut = Callable[[int, int], Items[int]]
"""Sizes of the parts for a stream's rows in a round with drafts, by how many rows and how many streams decode."""


def no_drafts(_sequence: Sequence, _limit: int) -> Items[int]:
    """Proposes nothing."""
    return ()


def together(rows: int, _streams: int) -> Items[int]:
    """One part."""
    return (rows,)


def apart(rows: int, _streams: int) -> Items[int]:
    """Each row in a part of its own, as it would be without drafts: for engines whose bits depend on the batch."""
    return (1,) * rows


@dataclass(frozen=True, slots=True)
class Committed:
    """What a round brought a sequence: the tokens that count, and how it ended if it did."""

    sequence: Sequence
    tokens: tuple[int, ...]
    finish: Finish | None


class Scheduler:
    """The queue and the open streams of one ring.

    The limits are those of the tightest stage (wire.md 6): `parallel` streams, parts of `chunk` rows, rounds of
    `max_rows`, `context` positions a stream, `kv_rows` in all. `groups` rounds of decodes may be under way at once, and
    as many of prompts; `send_tokens` puts the token ids into the plans, `rows_back` has every row of every prompt come
    back. Parts of prompts are multiples of `grain` rows, but for a last one that is smaller: an engine may need that
    for bits that do not depend on the part's size. Raises ValueError with the limit's name where no sequence could ever
    run.
    """

    def __init__(
        self,
        parallel: int,
        chunk: int,
        max_rows: int,
        context: int,
        kv_rows: int,
        *,
        groups: int = 1,
        send_tokens: bool = False,
        rows_back: bool = False,
        grain: int = 1,
        lookup: Lookup = lambda _: None,
        propose: Propose = no_drafts,
        cut: Cut = together,
    ) -> None:
        for name, value in (
            ("parallel", parallel),
            ("chunk", chunk),
            ("max_rows", max_rows),
            ("groups", groups),
            ("grain", grain),
        ):
            if value < 1:
                raise ValueError(f"{name}: {value} is not at least 1")
        if kv_rows < context:
            raise ValueError(f"kv_rows: {kv_rows} is less than the context of {context}")
        self._chunk = chunk
        self._max_rows = max_rows
        self._groups = groups
        self._send_tokens = send_tokens
        self._rows_back = rows_back
        self._propose = propose
        self._cut = cut
        # A piece fits beside a decode of every stream, so that prompts keep their cuts under any load.
        self._piece = max(1, min(chunk, max_rows - parallel))
        if self._piece > grain:
            self._piece -= self._piece % grain
        self._prompts = PromptQueue(self._piece, parallel, context, kv_rows, lookup, grain=grain)
        self._open: dict[int, Stream] = {}
        self._slots: dict[int, int] = {}
        self._ready: deque[Stream] = deque()
        self._leaving: list[StreamEntry] = []
        self._cache: list[CacheOp] = []
        self._under_way: deque[tuple[Scheduled, bool]] = deque()
        """Rounds that are not committed, each with whether streams decode in it."""

    @property
    def piece(self) -> int:
        """Prompts are cut at multiples of so many rows."""
        return self._piece

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return self._prompts.waiting

    @property
    def running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._open)

    @property
    def under_way(self) -> int:
        """Rounds that were planned and are not committed."""
        return len(self._under_way)

    @property
    def slots(self) -> Mapping[int, int]:
        """By stream, its slot on every stage once all that is planned has run."""
        return self._slots

    @property
    def reserved_rows(self) -> int:
        """Rows set aside for the open streams, of `kv_rows`."""
        return sum(stream.reserved for stream in self._open.values())

    @property
    def idle(self) -> bool:
        """Nothing to plan and nothing to wait for."""
        return not (self.waiting or self._open or self._leaving or self._under_way)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises PromptTooLong, or ValueError with the name of a field that is wrong."""
        sequence.rows_back = sequence.rows_back or self._rows_back
        self._prompts.add(sequence)

    def cancel(self, sequence_id: int) -> None:
        """End a sequence that nobody wants any more; its slot is free with the next plan. Unknown ids are let be."""
        self.finish(sequence_id, Finish.CANCELLED)

    def finish(self, sequence_id: int, finish: Finish) -> None:
        """End a sequence from outside (a stop string was met, a client hung up); as `cancel` otherwise."""
        stream = self._open.get(sequence_id)
        if stream is None:
            self._prompts.withdraw(sequence_id, finish)
        else:
            self._end(stream, finish)

    def cache(self, op: CacheOp) -> None:
        """Have a key saved, with the next entry of its stream (its last one too), or dropped, with the next plan.

        What a save keeps has the rows of that entry. Raises ValueError for a save of a stream that is not open.
        """
        assert op.action is not CacheAction.RESTORE, "restores come from the lookup"
        streams = {*self._open, *(entry.stream for entry in self._leaving)}
        if op.action is CacheAction.SAVE and op.stream not in streams:
            raise ValueError(f"stream: {op.stream} is not open")
        self._cache.append(op)

    def next_plan(self) -> Scheduled | None:
        """The next round, or None while there is nothing to run, or enough is under way."""
        decoding = sum(stream.sequence.state is State.DECODING for stream in self._open.values())
        decodes = self._next_group()
        if not decodes and not self._prompts_may_run:
            return None
        room = self._max_rows - len(decodes)
        patient = bool(self._under_way or self._leaving)
        turns: list[Turn] = []
        restores: list[CacheOp] = []
        if not decodes or self._groups == 1:
            turns, restores = self._prompts.turns(room, self._open, alone=not decoding, patient=patient)
        spare = room - sum(turn.entry.rows for turn in turns)
        for stream in decodes:
            turns.append(self._decode(stream, spare, decoding))
            spare -= len(turns[-1].drafts)
        leaving, self._leaving = self._leaving, []
        if not turns and not leaving:
            return None
        self._move(leaving, turns)
        here = {entry.stream for entry in (*leaving, *(turn.entry for turn in turns))}
        due = [op for op in self._cache if op.action is CacheAction.DROP or op.stream in here]
        self._cache = [op for op in self._cache if op not in due]
        scheduled = build(turns, leaving, [*restores, *due], self._chunk, send_tokens=self._send_tokens)
        self._under_way.append((scheduled, bool(decodes)))
        return scheduled

    @property
    def _prompts_may_run(self) -> bool:
        """A round of prompts alone may leave: one for each round of decodes that is on its way.

        So a decode waits for one part on each stage, and the stages have that part to run while it is away.
        """
        decodes = [decodes for _, decodes in self._under_way]
        if self._groups > 1 and True in decodes:
            return False not in decodes[decodes.index(True) :]
        return len(decodes) < self._groups

    def _next_group(self) -> list[Stream]:
        """Who decodes in the next round: the group of the stream that has waited longest, as far as it is ready."""
        if not self._ready or sum(decodes for _, decodes in self._under_way) >= self._groups:
            return []
        if self._groups == 1 and self._under_way:
            return []
        decoding = [id_ for id_, stream in self._open.items() if stream.sequence.state is State.DECODING]
        decoding.sort(key=self._slots.__getitem__)
        group = {id_: index * self._groups // len(decoding) for index, id_ in enumerate(decoding)}
        next_ = group[self._ready[0].sequence.id]
        chosen = [stream for stream in self._ready if group[stream.sequence.id] == next_][: self._max_rows]
        for stream in chosen:
            self._ready.remove(stream)
        return chosen

    def _move(self, leaving: Items[StreamEntry], turns: Items[Turn]) -> None:
        """Take note of the slots that a plan frees and fills, the lowest first, as stage/slots.py does."""
        for entry in leaving:
            self._slots.pop(entry.stream, None)
        opening = sorted(turn.entry.stream for turn in turns if turn.entry.op in (Op.OPEN, Op.RESUME))
        if opening:
            taken = set(self._slots.values())
            free = (slot for slot in range(len(taken) + len(opening)) if slot not in taken)
            self._slots.update(zip(opening, free, strict=False))

    def commit(self, scheduled: Scheduled, tokens: Mapping[int, Items[int]]) -> list[Committed]:
        """Take in the oldest round's tokens, by sequence id: one each, or the accepted drafts and the one after them.

        Sequences that ended meanwhile are passed over; nobody needs to sample for them.
        """
        oldest, _ = self._under_way.popleft()
        assert scheduled is oldest, "rounds are committed in their order"
        committed: list[Committed] = []
        for wanted in scheduled.wanted:
            stream = self._open.get(wanted.sequence.id)
            if not wanted.sample or stream is None:
                continue
            chosen = tuple(tokens[wanted.sequence.id])
            assert chosen, "no token"
            assert chosen[:-1] == wanted.drafts[: len(chosen) - 1], "drafts that were not accepted"
            if wanted.drafts:
                stream.keep(len(chosen))
            committed.append(self._append(stream, chosen))
        return committed

    def _append(self, stream: Stream, chosen: tuple[int, ...]) -> Committed:
        sequence = stream.sequence
        for count, token in enumerate(chosen, 1):
            sequence.produced.append(token)
            if token in sequence.stop_ids or not stream.tokens_left:
                self._end(stream, Finish.STOP if token in sequence.stop_ids else Finish.LENGTH)
                return Committed(sequence, chosen[:count], sequence.finish)
        self._ready.append(stream)
        return Committed(sequence, chosen, None)

    def _end(self, stream: Stream, finish: Finish) -> None:
        """Take a stream off the books; the next plan frees its slot before it opens another."""
        stream.sequence.state, stream.sequence.finish = State.FINISHED, finish
        del self._open[stream.sequence.id]
        self._prompts.left(stream)
        if stream in self._ready:
            self._ready.remove(stream)
        self._leaving.append(stream.leave(Op.CANCEL if finish is Finish.CANCELLED else Op.CLOSE))

    def _decode(self, stream: Stream, spare: int, streams: int) -> Turn:
        sequence = stream.sequence
        limit = min(spare, stream.tokens_left - 1, self._chunk - 1)
        drafts = tuple(self._propose(sequence, limit))[:limit] if limit > 0 else ()
        rows = 1 + len(drafts)
        entry = stream.take(rows)
        pieces = tuple(self._cut(rows, streams)) if drafts else (rows,)
        return Turn(sequence, entry, (sequence.produced[-1], *drafts), pieces, rows, False, True, drafts)
