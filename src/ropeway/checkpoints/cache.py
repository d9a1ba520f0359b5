"""The cache directory: files that are complete or absent, written by one process at a time.

A file is written beside its place under a lock, flushed to the disk, then renamed. A writer that was killed leaves a
`.part` file, which the next writer of the same file overwrites. Knows nothing of models.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from ropeway.checkpoints.errors import CheckpointError

LOCK_WAIT_S = 900.0
"""Longest wait for another process that writes the same file."""
FETCH_WAIT_S = 86400.0
"""The same for a file that is being fetched."""
PART = ".part"

_LOCK_POLL_S = 0.05


def cache_directory() -> Path:
    """ROPEWAY_CACHE, else the platform's place for caches; not made yet."""
    if named := os.environ.get("ROPEWAY_CACHE"):
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ropeway"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "ropeway"


def cached_file(path: Path, nbytes: int, write: Callable[[BinaryIO], None]) -> Path:
    """`path`, written by `write` unless it is there with `nbytes` bytes already.

    Raises CheckpointError when it cannot be stored (no room, no right to write), and lets pass what `write` raises;
    either way nothing is left behind.
    """
    return _stored(path, nbytes, lambda: _complete(path, nbytes), write)


def exact_file(path: Path, data: bytes) -> Path:
    """`path` with these bytes and no others: what it had before is replaced in one step, never missing in between.

    Raises CheckpointError when it cannot be stored.
    """

    def write(file: BinaryIO) -> None:
        file.write(data)

    def there() -> bool:
        return _complete(path, len(data)) and path.read_bytes() == data

    return _stored(path, len(data), there, write)


def resumed_file(path: Path, nbytes: int, go_on: Callable[[FileIO], None], wait_s: float = FETCH_WAIT_S) -> Path:
    """`path`, completed by `go_on` unless it is there with `nbytes` bytes already.

    `go_on` gets what an earlier call has left, open for reading and writing without a buffer. As `cached_file`, but
    whatever it raises, what it has written is kept for the next call.
    """
    if _complete(path, nbytes):
        return path
    with storing(path, nbytes), locked(path, wait_s):
        if not _complete(path, nbytes):
            part = path.with_name(path.name + PART)
            with FileIO(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+") as file:
                go_on(file)
                os.fsync(file.fileno())
            part.replace(path)
            _sync_directory(path.parent)
    return path


@contextmanager
def storing(path: Path, nbytes: int) -> Iterator[None]:
    """Turn an OSError of the block, which stores `nbytes` bytes at `path`, into a CheckpointError that says so."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(path.parent).free
            raise CheckpointError(
                f"{path.parent}: the disk is full: {path.name} needs {_megabytes(nbytes)}, "
                f"{_megabytes(free)} are free; make room or set ROPEWAY_CACHE to another place"
            ) from error
        why = error.strerror or error
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            why = "something else is where its directory should be"
        raise CheckpointError(
            f"{path}: cannot be stored: {why}; set ROPEWAY_CACHE to a place that can be written"
        ) from error


@contextmanager
def locked(path: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the lock of `path` among processes. Raises CheckpointError when another one keeps it for `wait_s`."""
    lock = path.with_name(path.name + ".lock")
    descriptor = _acquire(lock, time.monotonic() + wait_s, wait_s)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(lock: Path, until: float, wait_s: float) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file_of(descriptor, lock):
                return descriptor
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(descriptor)
                raise CheckpointError(f"{lock}: another process has held this lock for {wait_s:.0f} s") from None
            time.sleep(_LOCK_POLL_S)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_file_of(descriptor: int, lock: Path) -> bool:
    """Whether the locked file still has its name: its last holder unlinks it."""
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False


def _complete(path: Path, nbytes: int) -> bool:
    try:
        return path.stat().st_size == nbytes
    except OSError:
        return False


def _stored(path: Path, nbytes: int, there: Callable[[], bool], write: Callable[[BinaryIO], None]) -> Path:
    if there():
        return path
    with storing(path, nbytes), locked(path):
        if not there():
            _write(path, write)
    return path


def _write(path: Path, write: Callable[[BinaryIO], None]) -> None:
    part = path.with_name(path.name + PART)
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
