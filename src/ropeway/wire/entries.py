"""What a plan is made of (wire.md 7): stream entries, cache operations and what comes back to rank 0."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

KEY_BYTES: Final = 16
"""Bytes of a prompt-cache key."""


class Op(IntEnum):
    """What a plan does with a stream."""

    OPEN = 1
    CONTINUE = 2
    CLOSE = 3
    CANCEL = 4
    RESUME = 5

    @property
    def label(self) -> str:
        """Lower-case name, as wire.md 7 writes it."""
        return self.name.lower()


class CacheAction(IntEnum):
    """What a plan does with a prompt-cache key."""

    SAVE = 1
    RESTORE = 2
    DROP = 3

    @property
    def label(self) -> str:
        """Lower-case name, as wire.md 7 writes it."""
        return self.name.lower()


class Returns(IntEnum):
    """Which rows come back to rank 0: each stream's last, all, or as many of its last as `Plan.listed` says."""

    LAST = 0
    ALL = 1
    LISTED = 2

    @property
    def label(self) -> str:
        """Lower-case name."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One stream in a plan: `rows` rows at positions first..first+rows.

    `accepted` rows of the stream's last round stay before these run; `resume` is the position of a restored state;
    `generation` is the stage's count before this entry's own rollback. Fields that an op does not use are 0.
    """

    stream: int
    op: Op
    first: int = 0
    rows: int = 0
    accepted: int = 0
    resume: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class CacheOp:
    """One prompt-cache operation. `key` is 16 bytes; `stream` is 0 where the action is a drop."""

    action: CacheAction
    stream: int
    key: bytes
