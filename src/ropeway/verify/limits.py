"""How far from the whole model a placement may be before `check` says no."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

from ropeway.verify.compare import Comparison


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds in nats and logits, lower bounds as shares. Inside one engine bits are the limit, not these."""

    kl_mean: float = 0.005
    kl_p99: float = 0.05
    kl_max: float = 0.5
    max_abs_diff: float = math.inf
    top1: float = 0.9
    top5: float = 0.9

    def broken(self, comparison: Comparison, *, bits: bool) -> list[str]:
        """Which limits a comparison breaks, in words; with `bits` every step must be equal."""
        found = []
        if bits and comparison.equal_steps != comparison.steps:
            found.append(f"bits: {comparison.steps - comparison.equal_steps} of {comparison.steps} steps differ")
        logits = bool(comparison.divergences)
        for name, value, most in (
            ("kl_mean", comparison.kl_mean, self.kl_mean),
            ("kl_p99", comparison.kl_p99, self.kl_p99),
            ("kl_max", comparison.kl_max, self.kl_max),
            ("max_abs_diff", comparison.max_abs_diff, self.max_abs_diff),
        ):
            if logits and not value <= most:
                found.append(f"{name}: {value:.3g}, at most {most:g}")
        for name, value, least in (("top1", comparison.top1, self.top1), ("top5", comparison.top5, self.top5)):
            if (logits or name == "top1") and comparison.steps and value < least:
                found.append(f"{name}: {value:.4f}, at least {least:g}")
        return found


def parse_limits(text: str, base: Limits | None = None) -> Limits:
    """'kl_mean=0.01,top1=0.98' over the defaults. Raises ValueError."""
    values = asdict(base or Limits())
    known = [field.name for field in fields(Limits)]
    for piece in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = piece.partition("=")
        if name not in known:
            raise ValueError(f"limits: {name!r} is none of {', '.join(known)}")
        try:
            values[name] = float(number)
        except ValueError:
            raise ValueError(f"limits: {name} is {number!r}, expected a number") from None
        if math.isnan(values[name]) or values[name] < 0:
            raise ValueError(f"limits: {name} is {number}, expected a number that is not negative")
    return Limits(**values)
