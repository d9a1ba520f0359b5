"""A round between its launch and its landing, and what is remembered of it: where its time went."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ropeway.engines.base import Logits
from ropeway.serving.rounds import Scheduled
from ropeway.stage.work import StageWork
from ropeway.wire import Done, Returns


@dataclass(slots=True)
class RoundRecord:
    """Where one round's time went, in nanoseconds of rank 0's clock; `dones` fill in as the stages report."""

    number: int
    rows: int
    parts: int
    launched_ns: int
    sent_ns: int = 0
    """Rank 0 had run its layers for the last part."""
    back_ns: int = 0
    """The last rows (or the tokens) had come back."""
    landed_ns: int = 0
    """Tokens were chosen and committed."""
    own_ns: int = 0
    """In rank 0's engine, the head left out."""
    head_ns: int = 0
    wait_rows_ns: int = 0
    """That rank 0 has waited for what comes back; the rest of the way there it had other rounds to run."""
    wait_send_ns: int = 0
    alone: bool = True
    """No other round was under way with it."""
    dones: dict[int, Done] = field(default_factory=dict)

    @property
    def unseen(self) -> bool:
        """Nothing of it comes back, so its rows may be under way when it has landed."""
        return self.rows > 0 and not self.back_ns

    def wire_ns(self, world: int) -> int | None:
        """The round less every stage's forward, for a round of one part that was alone and brought something back.

        None until all stages have reported, and where there is no wire.
        """
        if world == 1 or len(self.dones) < world - 1 or self.parts != 1 or not self.alone or not self.back_ns:
            return None
        return self.back_ns - self.launched_ns - self.own_ns - sum(d.forward_ns for d in self.dones.values())


@dataclass(slots=True)
class UnderWay:
    """A round between launch and landing. `frames` are the parts whose rows each frame that is still to come brings."""

    scheduled: Scheduled
    work: StageWork
    record: RoundRecord
    frames: deque[tuple[int, ...]]
    sent: int = 0
    """Parts that rank 0 has sent."""
    unread: int = 0
    """Of these, those that no frame has brought back yet."""
    taken: int = 0
    """Returned rows that have been taken in."""
    last: dict[int, list[Logits]] = field(default_factory=dict)
    """By sequence, the logits that choose its tokens."""

    @property
    def due(self) -> bool:
        """The next frame comes without another part's having to leave first."""
        if not self.frames:
            return False
        return self.sent > self.frames[0][-1] if self.every else self.sent == len(self.work.parts)

    @property
    def every(self) -> bool:
        """Each part has a frame of its own on the way back."""
        return self.scheduled.plan.returns is Returns.ALL
