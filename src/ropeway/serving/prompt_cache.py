"""Which prefixes every stage keeps, and who goes first: rank 0's account of the prompt cache.

Pure: the standard library alone; keys come from a counter. An entry serves only once every rank has acknowledged its
part (wire.md 7). A prompt resumes at a multiple of the part's size, so that the rows that still run do so in the parts
that an uncached prompt would have had: the same bits. So only whole pieces of that size count, and prefixes are found
by the hash of their pieces: in time linear in the prompt, however much is kept.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Final

from ropeway.serving.sequence import Sequence
from ropeway.serving.slots import Prefix, Soon
from ropeway.wire import CacheAck

LEAST_ROWS: Final = 64
"""Shorter prefixes are quicker to read than to keep."""
_DIGEST_BYTES: Final = 32


@dataclass(slots=True, eq=False)
class Entry:
    """One kept state. `chain` has a hash for each prefix of whole pieces, `acked` the ranks that hold their part."""

    key: bytes
    chain: tuple[bytes, ...]
    bytes: int
    acked: set[int] = field(default_factory=set)


class PromptCache:
    """Entries by key, least recently used first, within `limit_bytes` over all stages together.

    `row_bytes` is what one position costs on all stages; `piece` is the size of a prompt's parts. With `exact` a state
    serves at its last whole piece alone: recurrent states cannot be cut anywhere.
    """

    def __init__(self, world: int, piece: int, row_bytes: int, limit_bytes: int, *, exact: bool = False) -> None:
        self._world = world
        self._piece = piece
        self._row_bytes = row_bytes
        self.limit_bytes = limit_bytes
        self._exact = exact
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._having: dict[bytes, dict[bytes, Entry]] = {}
        """By a prefix's hash, the entries (by key) that begin with it."""
        self._tips: dict[bytes, Entry] = {}
        """By the hash of all its pieces, the one entry that has just these."""
        self._made = 0
        self.kept_bytes = 0
        """Bytes kept on all stages, as reckoned."""
        self.hits = 0
        self.misses = 0
        self.hit_tokens = 0

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(self, sequence: Sequence) -> Prefix | Soon | None:
        """The longest prefix of a prompt that can be resumed, at most all of its rows but one.

        Soon where some rank has yet to acknowledge a state that would spare `LEAST_ROWS` rows more.
        """
        if not self._entries:
            return None
        chain = self._chain(sequence.prompt[:-1])
        coming, found = 0, None
        for pieces in range(len(chain), 0, -1):
            rows = pieces * self._piece
            if rows < LEAST_ROWS:
                break
            if (entry := self._usable(chain[pieces - 1])) is not None:
                found = Prefix(entry.key, rows)
                break
            if self._held(chain[pieces - 1]):
                coming = max(coming, rows)
        spared = 0 if found is None else found.rows
        return Soon(found) if coming - spared >= LEAST_ROWS else found

    def entered(self, sequence: Sequence) -> None:
        """A sequence has begun: count it, and keep what it used from going first."""
        if not sequence.cached_rows:
            self.misses += 1
            return
        self.hits += 1
        self.hit_tokens += sequence.cached_rows
        entry = self._usable(self._chain(sequence.prompt[: sequence.cached_rows])[-1])
        if entry is not None:
            self._entries.move_to_end(entry.key)

    def add(self, tokens: Items[int]) -> tuple[bytes, list[bytes]] | None:
        """Take in the state of these rows, which is about to be saved: its key, and the keys to drop for it.

        None where it is not worth keeping (short, or held already) or where there is no room: what still waits for
        acknowledgements is not dropped.
        """
        size = len(tokens) * self._row_bytes
        chain = self._chain(tokens)
        if len(chain) * self._piece < LEAST_ROWS or size > self.limit_bytes or self._held(chain[-1]):
            return None
        dropped = self._room(size, chain)
        if dropped is None:
            return None
        for old in dropped:
            self._remove(old)
        self._made += 1
        entry = Entry(self._made.to_bytes(16, "little"), chain, size)
        self._entries[entry.key] = self._tips[chain[-1]] = entry
        self.kept_bytes += size
        for digest in chain:
            self._having.setdefault(digest, {})[entry.key] = entry
        return entry.key, [old.key for old in dropped]

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
                self._remove(entry)
                failed.append(ack.key)
        return failed

    def _room(self, size: int, chain: tuple[bytes, ...]) -> list[Entry] | None:
        """What goes for a new entry: all that it holds as well, then the least used. None where that is too little."""
        held = () if self._exact else chain
        going = {tip.key: tip for digest in held if (tip := self._tips.get(digest)) and self._whole(tip)}
        kept = self.kept_bytes - sum(entry.bytes for entry in going.values())
        for key, entry in self._entries.items():
            if kept + size <= self.limit_bytes:
                break
            if self._whole(entry) and key not in going:
                going[key] = entry
                kept -= entry.bytes
        return list(going.values()) if kept + size <= self.limit_bytes else None

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.key], self._tips[entry.chain[-1]]
        self.kept_bytes -= entry.bytes
        for digest in entry.chain:
            having = self._having[digest]
            del having[entry.key]
            if not having:
                del self._having[digest]

    def _whole(self, entry: Entry) -> bool:
        """Every rank has its part."""
        return len(entry.acked) == self._world

    def _held(self, digest: bytes) -> bool:
        """Some state serves for this prefix, or will once it is acknowledged."""
        return digest in (self._tips if self._exact else self._having)

    def _usable(self, digest: bytes) -> Entry | None:
        if self._exact:
            tip = self._tips.get(digest)
            return tip if tip is not None and self._whole(tip) else None
        return next(filter(self._whole, self._having.get(digest, {}).values()), None)

    def _chain(self, tokens: Items[int]) -> tuple[bytes, ...]:
        """A hash for each prefix of whole pieces, the shortest first."""
        data = array("q", tokens).tobytes()
        step = 8 * self._piece
        running = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        chain: list[bytes] = []
        for stop in range(step, len(data) + 1, step):
            running.update(data[stop - step : stop])
            chain.append(running.digest())
        return tuple(chain)
