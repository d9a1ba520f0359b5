"""How far a fetch is, on standard error: a bar on a terminal, gone when it is done; elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

LINE_S: Final = 10.0
"""Seconds between lines where there is no terminal."""
LABEL: Final = 32
"""Longest label of a bar."""


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows `what` and how far it is; the block gets what to call with bytes done and bytes in all."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(what)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(shortened(what), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def shortened(text: str) -> str:
    """The beginning and the end of a text that would leave no room for a bar."""
    return text if len(text) <= LABEL else f"{text[:10]}…{text[11 - LABEL :]}"


class Lines:
    """Says how far it is at most every `LINE_S`, so that a short fetch says nothing."""

    def __init__(
        self,
        what: str,
        write: Callable[[str], object] = lambda line: sys.stderr.write(line),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._write = write
        self._clock = clock
        self._next = clock() + LINE_S

    def __call__(self, done: int, total: int) -> None:
        """So many bytes of so many are here."""
        now = self._clock()
        if now >= self._next:
            self._next = now + LINE_S
            self._write(f"ropeway: {self._what}: {done / 1e6:.0f} of {total / 1e6:.0f} MB\n")
