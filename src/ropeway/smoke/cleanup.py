"""`--cleanup`: what runs that are no more have left behind, by their ledgers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ropeway.launch.provider import Provider
from ropeway.smoke.ledger import Entries, Ledger, unsettled
from ropeway.smoke.reporter import Reporter
from ropeway.smoke.result import leftovers
from ropeway.smoke.steps import Deadline
from ropeway.smoke.teardown import Left, destroy_all

PAUSE_S: Final = 1.0


def clean_up(
    make: Callable[[Entries], Provider], reporter: Reporter, limit_s: float, directory: Path | None = None
) -> bool:
    """Destroy what every ledger names and everything that carries its label; True where nothing is left.

    `make` gives the provider that a ledger is about; each may take `limit_s`. A run that is still under way is let be.
    """
    clean = True
    for path in list(unsettled(directory)):
        ledger = Ledger.take_over(path)
        if ledger is None:
            reporter.told(f"{path.stem}: this run is still under way, and cleans up after itself")
            continue
        left: list[Left] = [Left(None, "the cleanup did not come to its end")]
        try:
            left = _settle(ledger, make, reporter, limit_s)
        finally:
            ledger.close(settled=not left)
        clean = clean and not left
    return clean


def _settle(ledger: Ledger, make: Callable[[Entries], Provider], reporter: Reporter, limit_s: float) -> list[Left]:
    entries = ledger.entries()
    if not entries.announced:
        return []
    provider = make(entries)
    reporter.told(f"{entries.label}: {entries.announced} creates, {len(entries.left)} instances not known to be gone")

    def gone(instance: int) -> None:
        reporter.told(f"instance {instance} is gone")
        with suppress(OSError):
            ledger.gone(instance)

    deadline = Deadline("destroy", limit_s, time.monotonic() + limit_s, time.monotonic)
    try:
        left = destroy_all(provider, entries.left, entries.label, deadline, pause_s=PAUSE_S, gone=gone)
        command = provider.destroy_command("{id}")
    finally:
        provider.close()
    for line in leftovers(left, command, entries.label):
        reporter.red(line)
    return left
