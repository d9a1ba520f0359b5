"""How much of the disk the cache may take: what has not been used for longest goes first, never what is in use.

Counts slices and fetched copies. Whoever uses a file holds a lease on it; the time of its last use is its access time,
which is set here, because many systems do not keep it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ropeway.checkpoints.cache import PART
from ropeway.checkpoints.errors import CheckpointError

LIMIT: Final = "ROPEWAY_CACHE_LIMIT"
"""The environment variable: a size such as 40GB; unset, only the disk limits the cache."""
COUNTED: Final = ("slices", "fetched")
"""Directories of the cache that are counted and may lose files."""

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?([KMGT]?)B?", re.IGNORECASE)


def parse_size(text: str, name: str) -> int:
    """'40GB' in bytes, decimal units. Raises ValueError naming `name`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{name}: {text!r} is not a size such as 40GB or 500MB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def cache_limit() -> int | None:
    """What the environment allows, in bytes; None for no limit. Raises CheckpointError for what is no size."""
    text = os.environ.get(LIMIT, "")
    try:
        return parse_size(text, LIMIT) if text else None
    except ValueError as error:
        raise CheckpointError(str(error)) from None


class Lease:
    """A file of the cache that is in use while this object lives, in any process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        with suppress(OSError):  # it has just gone, or its file system has no locks
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        """Give it back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = close


def touch(path: Path) -> Path:
    """Note that `path` is used now."""
    with suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    return path


@dataclass(frozen=True, slots=True)
class Kept:
    """A file in the cache: `nbytes` on the disk, `used_ns` when it was last used."""

    path: Path
    nbytes: int
    used_ns: int


def kept_files(cache: Path) -> list[Kept]:
    """What is counted, the longest unused first."""
    found = []
    for path in _files(cache):
        with suppress(FileNotFoundError):
            stat = path.stat()
            found.append(Kept(path, stat.st_blocks * 512, stat.st_atime_ns))
    return sorted(found, key=lambda kept: (kept.used_ns, str(kept.path)))


def make_room(cache: Path, nbytes: int, limit: int | None = None, keep: Collection[Path] = ()) -> list[Path]:
    """Let `nbytes` more fit into the cache's limit (the environment's unless given); gives what was removed.

    What is in use stays, and so do the files and directories of `keep`. Raises CheckpointError when they do not fit
    though everything unused is gone.
    """
    limit = cache_limit() if limit is None else limit
    if limit is None or nbytes <= 0:
        return []
    kept, kept_back = kept_files(cache), set(keep)
    used = sum(file.nbytes for file in kept)
    going: list[Kept] = []
    for file in kept:
        if used + nbytes <= limit:
            break
        if not kept_back.intersection((file.path, *file.path.parents)) and _idle(file.path):
            going.append(file)
            used -= file.nbytes
    if used + nbytes > limit:
        raise CheckpointError(
            f"{cache}: the cache may take {_size(limit)}; {_size(nbytes)} more do not fit beside {_size(used)} that "
            f"are kept or in use; raise {LIMIT} or --cache-limit"
        )
    return [file.path for file in going if _idle(file.path, remove=True)]


def check_disk(path: Path, nbytes: int) -> None:
    """Refuse to begin what the disk cannot hold: `nbytes` more below `path`. Raises CheckpointError."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    free = shutil.disk_usage(there).free
    if nbytes > free:
        raise CheckpointError(
            f"{path}: the disk is too full: {_size(nbytes)} are to be fetched, {_size(free)} are free; make room or "
            f"set ROPEWAY_CACHE to another place"
        )


def _files(cache: Path) -> Iterator[Path]:
    for name in COUNTED:
        for directory, _, files in os.walk(cache / name):
            yield from (Path(directory, file) for file in files if not file.endswith((".lock", ".json")))


def _idle(path: Path, *, remove: bool = False) -> bool:
    """Whether nobody uses or writes a file; one that is idle is removed where that is asked for."""
    lock = path.with_name(path.name.removesuffix(PART) + ".lock") if path.name.endswith(PART) else path
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = -1  # a part that nobody writes
    try:
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if remove:
            path.unlink(missing_ok=True)
        return True
    except BlockingIOError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 10**9 else f"{nbytes / 1e6:.1f} MB"
