"""What a person sees on standard error while a run goes on: a line an event, and a clock on a terminal.

Never raises: a terminal that has gone must not keep a machine rented.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status

_WORDS = {
    "search": "searching for offers",
    "node": "starting the node here",
    "create": "renting",
    "running": "waiting until every instance runs",
    "converge": "waiting until every node has joined",
    "workers": "waiting until every stage is loaded",
    "names": "waiting for pp-entry and pp-exit",
    "reply": "waiting for the reply",
    "destroy": "giving everything back",
}


class Reporter:
    """Lines with the seconds since the beginning. Safe for several threads."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._started = time.monotonic()
        self._status: Status | None = None
        if self._console.is_terminal:
            self._status = self._console.status("starting")

    def step(self, name: str) -> None:
        """A step begins."""
        words = _WORDS[name]
        if self._status is not None:
            with suppress(OSError):
                self._status.update(words)
        self.told(words)

    def told(self, text: str) -> None:
        """Something has happened."""
        self._print(f"{time.monotonic() - self._started:6.1f} s  {escape(text)}")

    def settle(self) -> None:
        """Nothing is waited for any more: no clock between the lines that follow."""
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()

    def plain(self, text: str) -> None:
        """A line as it is."""
        self._print(escape(text))

    def red(self, text: str) -> None:
        """A line that must not be missed. It may hold a command to copy, so only the terminal breaks it."""
        self._print(f"[bold red]{escape(text)}[/bold red]", whole=True)

    def _print(self, markup: str, *, whole: bool = False) -> None:
        with suppress(OSError, ValueError):  # nobody can read it any more
            self._console.print(markup, soft_wrap=whole or not self._console.is_terminal)

    def __enter__(self) -> Self:
        if self._status is not None:
            with suppress(OSError):
                self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()
