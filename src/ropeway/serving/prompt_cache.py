"""Which prefixes every stage keeps, and who goes first: rank 0's account of the prompt cache.

Pure: the standard library alone; keys come from a counter. An entry serves only once every rank has acknowledged its
part (wire.md 7). A prompt resumes at a multiple of the part's size, so that the rows that still run do so in the parts
that an uncached prompt would have had: the same bits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from ropeway.serving.sequence import Sequence
from ropeway.serving.slots import Prefix
from ropeway.wire import CacheAck

LEAST_ROWS = 64
"""Shorter prefixes are quicker to read than to keep."""


@dataclass(slots=True, eq=False)
class Entry:
    """One kept state: the ids of its rows, and which ranks have acknowledged their part."""

    key: bytes
    tokens: tuple[int, ...]
    bytes: int
    acked: set[int] = field(default_factory=set)


class PromptCache:
    """Entries by key, least recently used first, within `limit_bytes` over all stages together.

    `row_bytes` is what one position costs on all stages; `piece` is the size of a prompt's parts.
    """

    def __init__(self, world: int, piece: int, row_bytes: int, limit_bytes: int) -> None:
        self._world = world
        self._piece = piece
        self._row_bytes = row_bytes
        self.limit_bytes = limit_bytes
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._made = 0
        self.hits = 0
        self.misses = 0
        self.hit_tokens = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def kept_bytes(self) -> int:
        """Bytes kept on all stages, as reckoned."""
        return sum(entry.bytes for entry in self._entries.values())

    def lookup(self, sequence: Sequence) -> Prefix | None:
        """The longest prefix of a prompt that can be resumed, at most all of its rows but one."""
        best, rows = self._longest(sequence.prompt[:-1])
        rows -= rows % self._piece
        if best is None or rows < LEAST_ROWS:
            return None
        return Prefix(best.key, rows)

    def entered(self, sequence: Sequence) -> None:
        """A sequence has begun: count it, and keep what it used from going first."""
        if not sequence.cached_rows:
            self.misses += 1
            return
        self.hits += 1
        self.hit_tokens += sequence.cached_rows
        best, _ = self._longest(sequence.prompt[:-1])
        if best is not None:
            self._entries.move_to_end(best.key)

    def wants(self, tokens: Items[int]) -> bool:
        """Whether the state of these rows is worth keeping: long enough, and not held already."""
        if len(tokens) < max(LEAST_ROWS, self._piece) or len(tokens) * self._row_bytes > self.limit_bytes:
            return False
        _, rows = self._longest(tuple(tokens))
        return len(tokens) - rows >= self._piece

    def add(self, tokens: Items[int]) -> tuple[bytes, list[bytes]]:
        """Take in an entry that is about to be saved; its key, and the keys to drop for it (subsumed or least used)."""
        self._made += 1
        key = self._made.to_bytes(16, "little")
        held = tuple(tokens)
        entry = Entry(key, held, len(held) * self._row_bytes)
        dropped = [
            e.key
            for e in self._entries.values()
            if len(e.acked) == self._world and _shared(e.tokens, held) == len(e.tokens)
        ]
        room = self.limit_bytes - entry.bytes
        kept = sum(e.bytes for e in self._entries.values() if e.key not in dropped)
        for other in list(self._entries.values()):
            if kept <= room:
                break
            if other.key not in dropped and len(other.acked) == self._world:
                dropped.append(other.key)
                kept -= other.bytes
        for gone in dropped:
            del self._entries[gone]
        self._entries[key] = entry
        return key, dropped

    def acknowledge(self, rank: int, acks: Iterable[CacheAck]) -> list[bytes]:
        """A rank has kept its part, or could not; the keys that are of no use any more and should be dropped."""
        failed: list[bytes] = []
        for ack in acks:
            entry = self._entries.get(ack.key)
            if entry is None:
                continue
            if ack.ok:
                entry.acked.add(rank)
            else:
                del self._entries[ack.key]
                failed.append(ack.key)
        return failed

    def _longest(self, tokens: tuple[int, ...]) -> tuple[Entry | None, int]:
        best, rows = None, 0
        for entry in self._entries.values():
            if len(entry.acked) == self._world and (shared := _shared(entry.tokens, tokens)) > rows:
                best, rows = entry, shared
        return best, rows


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Length of the longest common prefix."""
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle
    return low
