"""The times of membership: hashicorp/memberlist's figures for LAN and WAN, and Lifeguard's formulas over them.

SWIM: Das, Gupta, Motivala 2002. Lifeguard: Dadgar, Phillips, Currey 2017, arXiv:1707.00788.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals in seconds, and counts. The defaults are memberlist's for a LAN.

    `rejoin_interval_s`: how often a dead member is tried again. `forget_s`: how long dead and left members are kept.
    `tombstone_s`: how long an unregistered name is. `awareness_max`: the health score stays below it.
    """

    probe_interval_s: float = 1.0
    probe_timeout_s: float = 0.5
    indirect_checks: int = 3
    suspicion_multiplier: int = 4
    suspicion_max_multiplier: int = 6
    retransmit_multiplier: int = 4
    gossip_interval_s: float = 0.2
    gossip_nodes: int = 3
    gossip_to_dead_s: float = 30.0
    push_pull_interval_s: float = 30.0
    rejoin_interval_s: float = 15.0
    awareness_max: int = 8
    forget_s: float = 86_400.0
    tombstone_s: float = 3_600.0

    def __post_init__(self) -> None:
        if not 0 < self.probe_timeout_s < self.probe_interval_s:
            raise ValueError(f"probe_timeout_s: {self.probe_timeout_s} must lie inside 0..{self.probe_interval_s}")
        for name, value in (
            ("gossip_interval_s", self.gossip_interval_s),
            ("push_pull_interval_s", self.push_pull_interval_s),
            ("rejoin_interval_s", self.rejoin_interval_s),
            ("forget_s", self.forget_s),
            ("tombstone_s", self.tombstone_s),
        ):
            if not value > 0:
                raise ValueError(f"{name}: {value} must be above 0")
        for name, count, least in (
            ("indirect_checks", self.indirect_checks, 0),
            ("gossip_nodes", self.gossip_nodes, 1),
            ("suspicion_multiplier", self.suspicion_multiplier, 1),
            ("suspicion_max_multiplier", self.suspicion_max_multiplier, 1),
            ("retransmit_multiplier", self.retransmit_multiplier, 1),
            ("awareness_max", self.awareness_max, 1),
        ):
            if count < least:
                raise ValueError(f"{name}: {count} is below {least}")

    def suspicion_min_s(self, living: int) -> float:
        """The shortest suspicion among `living` members: multiplier x max(1, log10 n) x probe interval."""
        return self.suspicion_multiplier * max(1.0, math.log10(max(1, living))) * self.probe_interval_s

    def suspicion_max_s(self, living: int) -> float:
        """The longest suspicion: that of one accuser alone."""
        return self.suspicion_max_multiplier * self.suspicion_min_s(living)

    def confirmations(self, living: int) -> int:
        """k: how many more accusers bring a suspicion down to its shortest; 0 where there are too few members."""
        k = self.suspicion_multiplier - 2
        return k if living - 2 >= k > 0 else 0

    def suspicion_s(self, living: int, confirmed: int) -> float:
        """How long a suspicion lasts after `confirmed` more accusers (Lifeguard, section IV-B)."""
        low = self.suspicion_min_s(living)
        k = self.confirmations(living)
        if k == 0:
            return low
        high = self.suspicion_max_s(living)
        return max(low, high - (high - low) * math.log(confirmed + 1) / math.log(k + 1))

    def retransmits(self, living: int) -> int:
        """How often a member passes a piece of gossip on: multiplier x ceil(log10(n + 1))."""
        return self.retransmit_multiplier * math.ceil(math.log10(living + 1))

    def push_pull_s(self, living: int) -> float:
        """Push-pull's interval, longer in clusters of more than 32, as memberlist has it."""
        if living <= 32:
            return self.push_pull_interval_s
        return self.push_pull_interval_s * (math.ceil(math.log2(living) - 5) + 1)


LAN: Final = Timing()
WAN: Final = Timing(
    probe_interval_s=5.0,
    probe_timeout_s=3.0,
    suspicion_multiplier=6,
    gossip_interval_s=0.5,
    gossip_nodes=4,
    gossip_to_dead_s=60.0,
    push_pull_interval_s=60.0,
    rejoin_interval_s=30.0,
)
