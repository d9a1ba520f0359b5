"""What a ring would take for the very forwards that it ran if it cost nothing itself: no hop, no planning, no waking.

Stages whose times waver wait for each other however cheap the ring is, so a split's speed against one process has three
parts: what the ring costs (the rest of this bound), what the cut and the wavering cost (this bound against the sum of
the stages), and what smaller batches cost the engine. No clock is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropeway.serving.underway import RoundRecord


def least_ns(rounds: Sequence[RoundRecord], world: int, groups: int) -> int:
    """Nanoseconds from the first of these rounds' launch to the last one's head, all of one part, `groups` under way.

    Rank 0 launches in order; with `groups` rounds under way it takes the oldest one's head before the next launch.
    """
    free = [0] * world
    back: list[int] = []
    landed = 0
    for one in rounds:
        while len(back) - landed >= groups:
            free[0] = max(free[0], back[landed]) + rounds[landed].head_ns
            landed += 1
        at = free[0] = free[0] + one.own_ns
        for rank in range(1, world):
            at = free[rank] = max(free[rank], at) + one.dones[rank].forward_ns
        back.append(at)
    for one in rounds[landed:]:
        free[0] = max(free[0], back[landed]) + one.head_ns
        landed += 1
    return free[0]
