"""The cache: complete or absent, one writer at a time, and what is said when a file cannot be stored."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import pytest

from ropeway.checkpoints.cache import cache_directory, cached_file, exact_file, locked, resumed_file
from ropeway.checkpoints.errors import CheckpointError

CONTENT = b"0123456789"


def write_content(file: BinaryIO) -> None:
    file.write(CONTENT)


def never(_: BinaryIO) -> None:
    raise AssertionError("written again")


def fails_with(number: int) -> Callable[[BinaryIO], None]:
    def write(file: BinaryIO) -> None:
        file.write(b"some")
        raise OSError(number, os.strerror(number))

    return write


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({"ROPEWAY_CACHE": "/somewhere"}, "linux", "/somewhere"),
        ({"ROPEWAY_CACHE": "~/mine", "XDG_CACHE_HOME": "/xdg"}, "linux", "/home/me/mine"),
        ({"XDG_CACHE_HOME": "/xdg"}, "linux", "/xdg/ropeway"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", "/home/me/.cache/ropeway"),
        ({"ROPEWAY_CACHE": ""}, "linux", "/home/me/.cache/ropeway"),
        ({"XDG_CACHE_HOME": "/xdg"}, "darwin", "/home/me/Library/Caches/ropeway"),
    ],
)
def test_where_the_cache_is(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], platform: str, expected: str
) -> None:
    for name in ("ROPEWAY_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (environment | {"HOME": "/home/me"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_directory() == Path(expected)


def test_a_file_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    assert cached_file(path, len(CONTENT), write_content) == path
    assert cached_file(path, len(CONTENT), never) == path
    assert path.read_bytes() == CONTENT
    assert left(path.parent) == ["file"]


def test_other_bytes_of_the_same_size_are_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "note"
    assert exact_file(path, b"old").read_bytes() == b"old"
    kept = path.stat().st_ino
    assert exact_file(path, b"old").stat().st_ino == kept

    def dies(_descriptor: int) -> None:
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", dies)
        with pytest.raises(KeyboardInterrupt):
            exact_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert exact_file(path, b"new").read_bytes() == b"new"


def test_what_a_killed_writer_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"far longer than the file itself is")
    (tmp_path / "file.lock").touch()
    assert cached_file(tmp_path / "file", len(CONTENT), write_content).read_bytes() == CONTENT
    assert left(tmp_path) == ["file"]


def test_a_writer_killed_in_mid_file(tmp_path: Path) -> None:
    code = (
        "import sys, os; from pathlib import Path; from ropeway.checkpoints.cache import cached_file\n"
        "def write(file):\n"
        "    file.write(b'half'); file.flush(); print('writing', flush=True); sys.stdin.read()\n"
        "cached_file(Path(sys.argv[1]), 10, write)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "file")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        assert left(tmp_path) == ["file.lock", "file.part"]
        process.kill()
    assert cached_file(tmp_path / "file", len(CONTENT), write_content).read_bytes() == CONTENT
    assert left(tmp_path) == ["file"]


def test_a_second_writer_waits_and_then_finds_the_file(tmp_path: Path) -> None:
    path, inside, go_on = tmp_path / "file", threading.Event(), threading.Event()

    def slowly(file: BinaryIO) -> None:
        file.write(CONTENT)
        inside.set()
        assert go_on.wait(30)

    threads = [threading.Thread(target=cached_file, args=(path, len(CONTENT), slowly))]
    threads[0].start()
    assert inside.wait(30)
    threads.append(threading.Thread(target=cached_file, args=(path, len(CONTENT), never)))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == ["file"]


def test_a_lock_that_is_never_given_back_has_a_deadline(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with (
        locked(path),
        pytest.raises(CheckpointError, match=r"file\.lock: another process has held this lock for 0 s"),
        locked(path, wait_s=0.0),
    ):
        raise AssertionError("two holders")


def test_locks_exclude_each_other(tmp_path: Path) -> None:
    held, most = [0], [0]

    def hold() -> None:
        for _ in range(20):
            with locked(tmp_path / "file"):
                held[0] += 1
                most[0] = max(most[0], held[0])
                held[0] -= 1

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]
    assert left(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_how_much_and_where(tmp_path: Path, number: int) -> None:
    with pytest.raises(CheckpointError, match=r"disk is full: file needs 123\.5 MB, .* MB are free; .*ROPEWAY_CACHE"):
        cached_file(tmp_path / "file", 123_456_789, fails_with(number))
    assert left(tmp_path) == []


def test_other_failures_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="file: cannot be stored: Input/output error; set ROPEWAY_CACHE"):
        cached_file(tmp_path / "file", 10, fails_with(errno.EIO))
    assert left(tmp_path) == []


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with pytest.raises(CheckpointError, match="plain/file: cannot be stored: something else is where its directory"):
        cached_file(tmp_path / "plain" / "file", 10, never)


def test_an_error_of_the_writer_passes_and_leaves_nothing(tmp_path: Path) -> None:
    def write(file: BinaryIO) -> None:
        file.write(b"some")
        raise CheckpointError("the source is broken")

    with pytest.raises(CheckpointError, match=r"^the source is broken$"):
        cached_file(tmp_path / "file", 10, write)
    assert left(tmp_path) == []


@pytest.fixture
def mounted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of 64 KiB of its own, with the options of the test's parameter."""
    place = tmp_path / "mount"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        made = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if made.returncode:
        pytest.skip("mounting needs rights that we do not have")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_really_full_disk(mounted: Path) -> None:
    def write(file: BinaryIO) -> None:
        for _ in range(64):
            file.write(bytes(4096))

    with pytest.raises(CheckpointError, match=r"the disk is full: file needs 0\.3 MB, 0\.[01] MB are free"):
        cached_file(mounted / "file", 64 * 4096, write)
    assert left(mounted) == []


def test_a_read_only_cache_still_serves_what_it_has(mounted: Path) -> None:
    path = cached_file(mounted / "file", len(CONTENT), write_content)
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    assert cached_file(path, len(CONTENT), never) == path
    with pytest.raises(CheckpointError, match="other: cannot be stored: Read-only file system; set ROPEWAY_CACHE"):
        cached_file(mounted / "other", 10, never)
    with pytest.raises(CheckpointError, match="file: cannot be stored: Read-only file system"):
        cached_file(mounted / "deep" / "file", 10, never)


def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"

    def some(file: FileIO) -> None:
        file.seek(0, os.SEEK_END)
        file.write(CONTENT[file.tell() : file.tell() + 4])
        if file.tell() < len(CONTENT):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for length in (4, 8):
        with pytest.raises(CheckpointError, match=r"the disk is full: file needs 0\.0 MB, .* are free"):
            resumed_file(path, len(CONTENT), some)
        assert left(path.parent) == ["file.part"]
        assert (path.parent / "file.part").read_bytes() == CONTENT[:length]
    assert resumed_file(path, len(CONTENT), some).read_bytes() == CONTENT
    assert left(path.parent) == ["file"]
    assert resumed_file(path, len(CONTENT), some) == path
