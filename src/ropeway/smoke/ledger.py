"""What a run has rented, written down before it is: a file that outlives the orchestrator, for `--cleanup`.

One file a run, JSON lines, mode 0600; every line is on the disk before the call that it announces is made. A run holds
a lock on its file while it lives; the file goes once all that it names is known to be gone. It never holds a key.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SUFFIX: Final = ".ledger"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def state_directory() -> Path:
    """ROPEWAY_STATE, else the platform's place for what programs remember; not made yet."""
    if named := os.environ.get("ROPEWAY_STATE"):
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "ropeway"
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".local" / "state") / "ropeway"


@dataclass(slots=True)
class Entries:
    """What a ledger says: whose instances, which ids, and how many creates have no known outcome."""

    provider: str = ""
    server: str = ""
    label: str = ""
    ids: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    announced: int = 0
    refused: int = 0
    """Creates that certainly rented nothing."""
    unreadable: int = 0
    """Lines that cannot be read. Each may have announced a create, or named an instance."""

    @property
    def nothing(self) -> bool:
        """Certainly nothing was rented."""
        return not (self.announced or self.ids or self.unreadable)

    @property
    def unclear(self) -> bool:
        """Some create has no known outcome."""
        return self.announced - self.refused + self.unreadable > len(self.ids)

    @property
    def left(self) -> set[int]:
        """Ids that are not known to be gone."""
        return self.ids - self.gone


def check_label(label: str) -> None:
    """Refuse, with ValueError, a run's label that could not be a file's name."""
    if not _NAME.fullmatch(label):
        raise ValueError(f"label: {label!r} is not letters, digits, dots, dashes and underscores, at most 100")


class Ledger:
    """The ledger of a run that is under way, or one that is being settled. Locked until closed."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def begin(cls, provider: str, server: str, label: str, directory: Path | None = None) -> Ledger:
        """A new file for a run. Raises ValueError where the label is no file's name, is taken, or nothing is stored."""
        check_label(label)
        path = _ledgers(directory) / f"{label}{SUFFIX}"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            ledger = cls(path, _new_file(path))
            ledger._write({"event": "run", "provider": provider, "server": server, "label": label, "pid": os.getpid()})
            _sync_directory(path.parent)
        except FileExistsError:
            raise ValueError(f"label: a run of this label has left {path}; run pp-smoke-run --cleanup first") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise ValueError(f"ledger: {path} cannot be written ({why}); set ROPEWAY_STATE") from None
        return ledger

    @classmethod
    def take_over(cls, path: Path) -> Ledger | None:
        """The file of a run that is no more; None while that run still lives, or where the file has just gone."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    @property
    def age_s(self) -> float:
        """Seconds since the last line, by the clock on the wall."""
        return time.time() - os.fstat(self._descriptor).st_mtime

    def entries(self) -> Entries:
        """What the file says. A label that it does not say is the file's name."""
        size = os.fstat(self._descriptor).st_size
        entries = Entries(label=self.path.name.removesuffix(SUFFIX))
        for line in os.pread(self._descriptor, size, 0).splitlines():
            try:
                _take_in(entries, json.loads(line))
            except (ValueError, RecursionError):
                entries.unreadable += 1
        return entries

    def creating(self, offer: int) -> None:
        """A create is about to be sent. Raises OSError where that cannot be written: then nothing may be rented."""
        self._write({"event": "creating", "offer": offer})

    def created(self, instance: int) -> None:
        """A create has been answered with an id, or its instance was found by its label."""
        self._write({"event": "created", "id": instance})

    def refused(self) -> None:
        """The create that was announced last has rented nothing."""
        self._write({"event": "refused"})

    def gone(self, instance: int) -> None:
        """An instance is known to be gone."""
        self._write({"event": "gone", "id": instance})

    def close(self, *, settled: bool) -> None:
        """Let go of the file; `settled` deletes it, since nothing that it names is left."""
        if settled:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _write(self, value: dict[str, object]) -> None:
        line = json.dumps(value).encode() + b"\n"
        if os.write(self._descriptor, line) != len(line):
            raise OSError(f"{self.path}: the disk is full")
        os.fsync(self._descriptor)


def unsettled(directory: Path | None = None) -> Iterator[Path]:
    """The files of runs that have not settled what they rented, the oldest first; living runs among them."""
    found = [(path.stat().st_mtime, path) for path in _ledgers(directory).glob(f"*{SUFFIX}")]
    yield from (path for _, path in sorted(found))


def _ledgers(directory: Path | None) -> Path:
    return (directory or state_directory()) / "smoke-run"


def _new_file(path: Path) -> int:
    """A new, locked file. Raises FileExistsError, OSError."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Between the two calls a cleanup may have taken the empty file for one that nobody needs.
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take_in(entries: Entries, value: Any) -> None:
    """Take a line in. Raises ValueError for one that `Ledger` does not write."""
    if not isinstance(value, dict):
        raise ValueError("not an object")
    match value:
        case {"event": "run", "provider": str(provider), "server": str(server), "label": str(label)}:
            check_label(label)
            entries.provider, entries.server, entries.label = provider, server, label
        case {"event": "creating"}:
            entries.announced += 1
        case {"event": "refused"}:
            entries.refused += 1
        case {"event": "created", "id": int(number)}:
            entries.ids.add(number)
        case {"event": "gone", "id": int(number)}:
            entries.gone.add(number)
        case _:
            raise ValueError("no event that we know")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
