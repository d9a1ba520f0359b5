"""`--cleanup`: what runs that are no more have left behind, by their ledgers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ropeway.launch.provider import Provider
from ropeway.launch.vastai import VastAi, check_server
from ropeway.smoke.clock import elapsed
from ropeway.smoke.ledger import Ledger, unsettled
from ropeway.smoke.reporter import Reporter
from ropeway.smoke.result import leftovers
from ropeway.smoke.steps import Deadline
from ropeway.smoke.teardown import Left, destroy_all

PAUSE_S: Final = 1.0


def clean_up(
    make: Callable[[str], Provider],
    server: str,
    reporter: Reporter,
    limit_s: float,
    reconcile_s: float,
    directory: Path | None = None,
) -> bool:
    """Destroy what every ledger names and everything that carries its label; True where nothing is left.

    `make` gives the service at a URL; each ledger may take `limit_s`. A create whose outcome is not known is looked
    for until it is `reconcile_s` old. A run that is still under way is let be. A ledger that does not say which service
    it is about is held against the one at `server`, and kept: it may be another.
    """
    clean = True
    for path in list(unsettled(directory)):
        ledger = Ledger.take_over(path)
        if ledger is None:
            reporter.told(f"{path.stem}: this run, or a cleanup of it, is still under way: let be")
            continue
        left: list[Left] = [Left(None, "the cleanup did not come to its end")]
        try:
            left = _settle(ledger, make, server, reporter, limit_s, reconcile_s)
        finally:
            ledger.close(settled=not left)
        clean = clean and not left
    return clean


def _settle(
    ledger: Ledger,
    make: Callable[[str], Provider],
    server: str,
    reporter: Reporter,
    limit_s: float,
    reconcile_s: float,
) -> list[Left]:
    entries = ledger.entries()
    if entries.nothing:
        return []
    if entries.unreadable:
        reporter.told(f"{ledger.path} is damaged: {entries.unreadable} lines cannot be read")
    known = entries.provider == VastAi.name
    try:
        check_server(entries.server if known else server)
        if entries.provider and not known:
            raise ValueError(f"{entries.provider!r} is no service that we know")
    except ValueError as error:
        left = [Left(None, f"{ledger.path}: {error}")]
        _say(left, "", entries.label, reporter)
        return left
    provider = make(entries.server if known else server)
    reporter.told(f"{entries.label}: {entries.announced} creates, {len(entries.left)} instances not known to be gone")

    def gone(instance: int) -> None:
        reporter.told(f"instance {instance} is gone")
        with suppress(OSError):
            ledger.gone(instance)

    now = elapsed()
    deadline = Deadline("destroy", limit_s, now + limit_s, elapsed)
    unclear = {}
    if entries.unclear:
        young_s = reconcile_s - max(0.0, ledger.age_s)
        reporter.told(f"the outcome of a create is not known; looking for it for {max(0.0, young_s):.0f} s more")
        unclear = {"": now + young_s}
    try:
        left = destroy_all(provider, entries.left, entries.label, deadline, pause_s=PAUSE_S, unclear=unclear, gone=gone)
        command = provider.destroy_command("{id}")
    finally:
        provider.close()
    if not known:
        why = f"{ledger.path} does not say which service it is about; {server} has nothing of it"
        left = left or [Left(None, f"{why}. Delete the file if it was that one, else add --server-url")]
    _say(left, command, entries.label, reporter)
    return left


def _say(left: list[Left], command: str, label: str, reporter: Reporter) -> None:
    for line in leftovers(left, command, label):
        reporter.red(line)
