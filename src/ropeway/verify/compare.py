"""How far two sets of logits for the same inputs are apart. Pure numpy; knows nothing of models or rings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ropeway.serving.sampler import log_probs

Row = npt.NDArray[np.float32]


@dataclass(slots=True)
class Comparison:
    """Running figures over steps; a step is one position's logits, [vocabulary], of the split and of the whole."""

    steps: int = 0
    equal_steps: int = 0
    max_abs_diff: float = 0.0
    kl_sum: float = 0.0
    kl_max: float = 0.0
    top1_equal: int = 0

    def add(self, split: Row, whole: Row) -> None:
        """Take in one step. KL is of the whole's distribution against the split's, in nats."""
        self.steps += 1
        self.top1_equal += int(split.argmax()) == int(whole.argmax())
        if split.tobytes() == whole.tobytes():
            self.equal_steps += 1
            return
        if np.isfinite(split).all() and np.isfinite(whole).all():
            difference = float(np.abs(split.astype(np.float64) - whole.astype(np.float64)).max())
            divergence = kl(whole, split)
        else:
            difference = divergence = np.inf
        self.max_abs_diff = max(self.max_abs_diff, difference)
        self.kl_sum += divergence
        self.kl_max = max(self.kl_max, divergence)

    def add_token(self, split: int, whole: int) -> None:
        """Take in one step where the split gave its token alone."""
        self.steps += 1
        self.equal_steps += split == whole
        self.top1_equal += split == whole

    @property
    def kl_mean(self) -> float:
        """Mean KL divergence a step, in nats."""
        return self.kl_sum / self.steps if self.steps else 0.0

    @property
    def top1(self) -> float:
        """Share of steps with the same likeliest token."""
        return self.top1_equal / self.steps if self.steps else 0.0


def kl(whole: Row, split: Row) -> float:
    """KL(softmax(whole) || softmax(split)) in nats, computed in float64."""
    p, q = log_probs(whole), log_probs(split)
    return float(max(0.0, np.sum(np.exp(p) * (p - q))))
