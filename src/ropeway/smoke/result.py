"""What a run came to: one value, as JSON and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ropeway.smoke.steps import StepDone
from ropeway.smoke.teardown import Left


@dataclass(frozen=True, slots=True)
class Rented:
    """A machine that the run had; `price` is dollars an hour."""

    id: int
    stage: int
    price: float
    destroyed: bool


@dataclass(frozen=True, slots=True)
class Result:
    """`reason` says why it failed, and in which step; `dollars` is what the machines cost at their prices."""

    text: str
    token_ids: tuple[int, ...]
    ok: bool
    reason: str
    steps: tuple[StepDone, ...]
    instances: tuple[Rented, ...]
    dollars: float
    left: tuple[Left, ...] = ()
    """What may still cost money."""
    kept: bool = False
    """It was left on purpose."""

    def to_json(self) -> dict[str, Any]:
        """One JSON object; instances by their stages."""
        return {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "ok": self.ok,
            "reason": self.reason,
            "steps": [{"name": step.name, "seconds": round(step.seconds, 3)} for step in self.steps],
            "instances": [
                {"id": rented.id, "price": rented.price, "destroyed": rented.destroyed} for rented in self.instances
            ],
            "dollars": round(self.dollars, 6),
        }

    def summary(self) -> list[str]:
        """The same in lines for people, without the reply."""
        lines = [f"step {step.name}: {step.seconds:.3f} s{'' if step.ok else ' (failed)'}" for step in self.steps]
        lines += [
            f"instance {rented.id}: stage {rented.stage}, ${rented.price:g} an hour, "
            f"{'destroyed' if rented.destroyed else 'NOT destroyed'}"
            for rented in self.instances
        ]
        lines.append(f"{len(self.token_ids)} tokens: {' '.join(map(str, self.token_ids))}".rstrip(": "))
        lines.append(f"${self.dollars:.6f}")
        lines.append("ok" if self.ok else f"failed: {self.reason}")
        return lines


def banner(text: str, columns: int) -> str:
    """A reply between two lines, as wide as the terminal or the default."""
    head = "-- reply "
    width = max(len(head) + 2, min(columns, 80))
    return "\n".join([head.ljust(width, "-"), text, "-" * width])


def leftovers(left: Sequence[Left], command: str, label: str) -> list[str]:
    """What could not be destroyed, with the command that destroys it; `command` has {id} in it."""
    lines = []
    for one in left:
        if one.instance is None:
            lines.append(f"NOT KNOWN whether anything of run {label} is left: {one.why}")
        else:
            lines.append(f"NOT DESTROYED, may still cost money: instance {one.instance}: {one.why}")
            lines.append(f"  destroy it: {command.replace('{id}', str(one.instance))}")
    if lines:
        lines.append("  or run: pp-smoke-run --cleanup")
    return lines
