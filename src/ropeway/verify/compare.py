"""How far two sets of logits for the same inputs are apart. Pure numpy; knows nothing of models or rings."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ropeway.serving.sampler import log_probs

Row = npt.NDArray[np.float32]
TOP = 5


@dataclass(slots=True)
class Comparison:
    """Running figures over steps; a step is one position's logits, [vocabulary], of the split and of the whole."""

    steps: int = 0
    equal_steps: int = 0
    max_abs_diff: float = 0.0
    top1_equal: int = 0
    top5_share: float = 0.0
    """Sum over steps of the share of the whole's five likeliest tokens that are among the split's five."""
    divergences: list[float] = field(default_factory=list)
    """KL divergence of each step that had logits, in nats."""
    parted: dict[int, int] = field(default_factory=dict)
    """By sequence, the first produced token (counted from 0) at which the whole would have taken another."""

    def add(self, split: Row, whole: Row, *, sequence: int = 0, produced: int | None = None) -> None:
        """Take in one step. KL is of the whole's distribution against the split's, in nats.

        `produced` is the number of the token that the step chose, None for a row inside a prompt.
        """
        self._count(int(split.argmax()), int(whole.argmax()), sequence, produced)
        if split.tobytes() == whole.tobytes():
            self.equal_steps += 1
            self.top5_share += 1.0
            self.divergences.append(0.0)
            return
        self.top5_share += top_share(whole, split)
        if np.isfinite(split).all() and np.isfinite(whole).all():
            difference = float(np.abs(split.astype(np.float64) - whole.astype(np.float64)).max())
            divergence = kl(whole, split)
        else:
            difference = divergence = np.inf
        self.max_abs_diff = max(self.max_abs_diff, difference)
        self.divergences.append(divergence)

    def add_token(self, split: int, whole: int, *, sequence: int = 0, produced: int | None = None) -> None:
        """Take in one step where the split gave its token alone."""
        self._count(split, whole, sequence, produced)
        self.equal_steps += split == whole

    def _count(self, split: int, whole: int, sequence: int, produced: int | None) -> None:
        self.steps += 1
        self.top1_equal += split == whole
        if split != whole and produced is not None:
            self.parted.setdefault(sequence, produced)

    @property
    def kl_mean(self) -> float:
        """Mean KL divergence a step, in nats."""
        return sum(self.divergences) / len(self.divergences) if self.divergences else 0.0

    @property
    def kl_p99(self) -> float:
        """The KL divergence that 99 % of the steps stay at or below: of n values, the ceil(0.99 n)th smallest."""
        if not self.divergences:
            return 0.0
        ordered = sorted(self.divergences)
        return ordered[-(-99 * len(ordered) // 100) - 1]

    @property
    def kl_max(self) -> float:
        """The largest KL divergence, in nats."""
        return max(self.divergences, default=0.0)

    @property
    def top1(self) -> float:
        """Share of steps with the same likeliest token."""
        return self.top1_equal / self.steps if self.steps else 0.0

    @property
    def top5(self) -> float:
        """Mean share of the whole's five likeliest tokens that the split has among its five; steps with logits."""
        return self.top5_share / len(self.divergences) if self.divergences else 0.0

    @property
    def first_parting(self) -> int | None:
        """The earliest produced token at which any greedy reply leaves the whole's; None where none does."""
        return min(self.parted.values(), default=None)


def kl(whole: Row, split: Row) -> float:
    """KL(softmax(whole) || softmax(split)) in nats, computed in float64."""
    p, q = log_probs(whole), log_probs(split)
    return float(max(0.0, np.sum(np.exp(p) * (p - q))))


def top_share(whole: Row, split: Row) -> float:
    """Share of the whole's `TOP` likeliest tokens among the split's; the lowest ids first on ties."""
    count = min(TOP, len(whole))
    ours, theirs = (set(np.argsort(-row, kind="stable")[:count].tolist()) for row in (split, whole))
    return len(ours & theirs) / count
