"""The queue of prompts: who may enter, and which rows of whose prompt run next. First come, first served.

Pure: the standard library alone. A sequence enters when a slot is free and its prompt and reply fit what the open
streams leave of the KV rows; nobody behind it enters before it does, so nobody starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ropeway.serving.rounds import Turn
from ropeway.serving.sequence import Finish, Sequence, State
from ropeway.serving.slots import Prefix, Soon, Stream
from ropeway.wire import CacheAction, CacheOp

Lookup = Callable[[Sequence], Prefix | Soon | None]
"""The longest kept prefix of a prompt that may enter now, at most all of its rows but one. Asking changes nothing."""

ROUND_PIECES: Final = 2
"""Pieces of a lone prompt a round: a round is what a cancelled stream and a new prompt wait for. Rounds that bring
nothing back are not waited for, so a prompt loses nothing by being spread over many."""


class PromptTooLong(ValueError):
    """A prompt that leaves no room for a reply: `prompt_tokens` against a `context`."""

    def __init__(self, prompt_tokens: int, context: int) -> None:
        super().__init__(f"prompt: {prompt_tokens} tokens and a reply do not fit a context of {context}")
        self.prompt_tokens = prompt_tokens
        self.context = context


class PromptQueue:
    """Prompts that wait and the one that is on its way in.

    A prompt is cut at multiples of `piece` rows, counted from its beginning, whatever else is going on. What is left of
    it at the end is cut once more at a multiple of `grain`.
    """

    def __init__(
        self, piece: int, parallel: int, context: int, kv_rows: int, lookup: Lookup, *, grain: int = 1
    ) -> None:
        self._piece = piece
        self._grain = grain
        self._parallel = parallel
        self._context = context
        self._kv_rows = kv_rows
        self._lookup = lookup
        self._last_id = -1
        self._waiting: deque[Sequence] = deque()
        self._entering: Stream | None = None

    @property
    def waiting(self) -> int:
        """Sequences that hold no slot yet."""
        return len(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises PromptTooLong, or ValueError with the name of a field that is wrong."""
        if not sequence.prompt:
            raise ValueError("prompt: it has no tokens")
        if sequence.max_tokens < 1:
            raise ValueError(f"max_tokens: {sequence.max_tokens} is not at least 1")
        if len(sequence.prompt) >= self._context:
            raise PromptTooLong(len(sequence.prompt), self._context)
        if sequence.id <= self._last_id:
            raise ValueError(f"id: {sequence.id} does not follow {self._last_id}")
        self._last_id = sequence.id
        self._waiting.append(sequence)

    def withdraw(self, sequence_id: int, finish: Finish) -> None:
        """Take a waiting sequence out of the queue; others are let be."""
        for sequence in self._waiting:
            if sequence.id == sequence_id:
                self._waiting.remove(sequence)
                sequence.state, sequence.finish = State.FINISHED, finish
                return

    def left(self, stream: Stream) -> None:
        """An open stream has ended."""
        if stream is self._entering:
            self._entering = None

    def turns(
        self, room: int, opened: dict[int, Stream], *, alone: bool, patient: bool = False
    ) -> tuple[list[Turn], list[CacheOp]]:
        """Turns for at most `room` rows, and the restores that they need; who enters is added to `opened`.

        Where they are not alone, beside decodes, they fit one part: one piece of a long prompt, or several short ones.
        With `patient` (a round is under way, so there will be another) a prompt waits for a state that is being kept.
        """
        if not alone:
            room = min(room, self._piece)
        turns: list[Turn] = []
        restores: list[CacheOp] = []
        while stream := self._entering or self._admissible(opened, patient=patient):
            pieces = self._pieces(stream, room)[: self._most_pieces(stream, alone=alone)]
            if not pieces:
                break
            if not stream.opened:
                self._entering = opened[stream.sequence.id] = stream
                self._waiting.popleft()
                stream.sequence.state = State.ENTERING
                if stream.prefix is not None:
                    restores.append(CacheOp(CacheAction.RESTORE, stream.sequence.id, stream.prefix.key))
            turns.append(_turn(stream, pieces))
            room -= sum(pieces)
            if stream.prompt_left:
                break
            self._entering = None
            stream.sequence.state = State.DECODING
        return turns, restores

    @staticmethod
    def _most_pieces(stream: Stream, *, alone: bool) -> int | None:
        """Of one prompt in a round; None for no limit: rounds whose every row comes back are waited for."""
        if not alone:
            return 1
        return None if stream.sequence.all_rows else ROUND_PIECES

    def _admissible(self, opened: dict[int, Stream], *, patient: bool) -> Stream | None:
        """The head of the queue as a stream, where it may enter; nothing changes."""
        if not self._waiting or len(opened) >= self._parallel:
            return None
        sequence = self._waiting[0]
        prompt = len(sequence.prompt)
        limit = min(sequence.max_tokens, self._context - prompt)
        if sum(stream.reserved for stream in opened.values()) + prompt + limit > self._kv_rows:
            return None
        found = None if sequence.all_rows else self._lookup(sequence)
        if isinstance(found, Soon):
            if patient:
                return None
            found = found.now
        return Stream(sequence, prompt + limit, limit, found)

    def _pieces(self, stream: Stream, room: int) -> tuple[int, ...]:
        """The next rows of a prompt that fit, cut at multiples of the piece."""
        pieces: list[int] = []
        at, end = stream.position, len(stream.sequence.prompt)
        while at < end:
            rows = min(end, (at // self._piece + 1) * self._piece) - at
            if rows > self._grain:
                rows -= rows % self._grain
            if rows > room:
                break
            pieces.append(rows)
            at += rows
            room -= rows
        return tuple(pieces)


def _turn(stream: Stream, pieces: tuple[int, ...]) -> Turn:
    sequence = stream.sequence
    entry = stream.take(sum(pieces))
    whole = not stream.prompt_left
    returns = entry.rows if sequence.all_rows else int(whole)
    tokens = sequence.prompt[entry.first : entry.first + entry.rows]
    return Turn(sequence, entry, tokens, pieces, returns, True, whole)
