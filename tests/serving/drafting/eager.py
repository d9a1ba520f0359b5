"""Drafting that does not depend on how busy the machine is."""

from __future__ import annotations

from ropeway.serving.drafting.drafter import Drafter
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.drafting.window import Window


class Free(Window):
    """A window that believes that all rounds take the same time, and guesses none."""

    @property
    def guess_s(self) -> float:
        return 0.0

    @guess_s.setter
    def guess_s(self, seconds: float) -> None: ...

    def landed(self, rows: int, seconds: float, streams: int) -> None:
        super().landed(rows, 0.1, streams)


def eager(drafter: Drafter) -> Drafting:
    """Drafting that finds every guess worth its row."""
    return free(Drafting(drafter))


def free(drafting: Drafting) -> Drafting:
    """The same with a window that takes rows for free."""
    drafting.window = Free(drafting.window.acceptance.priors)
    return drafting
