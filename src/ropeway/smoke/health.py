"""Whether a node is well: a file that its loop touches, and the question whether that was lately."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

VARIABLE: Final = "HEALTH_FILE"
BEAT_S: Final = 2.0
STALE_S: Final = 20.0


class Pulse:
    """Touches the file that `HEALTH_FILE` names, at most every two seconds; does nothing without it."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        name = variables.get(VARIABLE, "")
        self._path = Path(name) if name else None
        self._beaten_at = float("-inf")

    def beat(self) -> None:
        """The node's loop has come round."""
        now = time.monotonic()
        if self._path is not None and now - self._beaten_at >= BEAT_S:
            self._beaten_at = now
            with suppress(OSError):  # then it counts as unwell, which is noticed
                self._path.touch(mode=0o600)


def is_well(variables: Mapping[str, str]) -> bool:
    """Whether the node that `HEALTH_FILE` belongs to has come round within 20 s."""
    try:
        touched = Path(variables.get(VARIABLE, "")).stat().st_mtime
    except OSError:
        return False
    return abs(time.time() - touched) < STALE_S
