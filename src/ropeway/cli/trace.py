"""`--trace FILE`: where the time of a run went, as a file that Perfetto (ui.perfetto.dev) shows."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ropeway.cli.session import stage_views
from ropeway.launch.rank0 import Rank0
from ropeway.serving.loop import Loop
from ropeway.serving.trace import Tracer
from ropeway.transport import RingEnded

LAST_DONES_S: Final = 1.0
"""How long the stages' reports of the last rounds are waited for."""


class TraceFile:
    """The rounds of one loop, written to `path`; nothing is done with None. Raises ValueError for a path at fault."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._tracer = Tracer()
        if path is not None:
            try:
                path.write_text("", encoding="utf-8")
            except OSError as error:
                raise ValueError(f"trace: {path} cannot be written: {error.strerror}") from None

    def launched(self, loop: Loop) -> None:
        """A round has left: it is the latest of the loop's records."""
        if self._path is not None:
            self._tracer.take(loop.records[-1])

    def write(self, rank0: Rank0, loop: Loop) -> None:
        """Write what there is, also of a ring that was lost."""
        if self._path is None:
            return
        world = rank0.placement.layout.world
        deadline = time.monotonic() + LAST_DONES_S
        with suppress(RingEnded):
            while any(len(r.dones) < world - 1 for r in self._tracer.records[-4:]) and time.monotonic() < deadline:
                loop.collect()
                time.sleep(0.002)
        names = [
            f"rank {view.rank}: layers {view.first}..{view.end}, {view.engine} on {view.backend}"
            for view in stage_views(rank0)
        ]
        self._tracer.write(self._path, names)
