"""The cache's limit: what was not used for longest goes first, what is in use stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ropeway.checkpoints import budget
from ropeway.checkpoints.budget import Lease, cache_limit, check_disk, kept_files, make_room, parse_size, touch
from ropeway.checkpoints.cache import locked
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.slicing import slice_stage
from tiny_gguf import write_tiny

KIB = 1024


def keep(cache: Path, name: str, kib: int, used: int) -> Path:
    """A file of the cache, last used at second `used`."""
    path = cache / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(kib * KIB))
    os.utime(path, (used, 0))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    keep(tmp_path, "slices/a.gguf", 64, 30)
    keep(tmp_path, "slices/b.gguf", 64, 10)
    keep(tmp_path, "fetched/k/header/c.gguf", 64, 20)
    keep(tmp_path, "fetched/k/whole/d.safetensors.part", 64, 40)
    keep(tmp_path, "models/demo.gguf", 64, 0)
    keep(tmp_path, "fetched/k/header/ropeway-origin.json", 4, 0)
    return tmp_path


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("40GB", 40 * 10**9), ("1.5 tb", 1_500_000_000_000), ("500M", 500 * 10**6), ("12", 12), (" 3kB ", 3000), ("0", 0)],
)
def test_sizes(text: str, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_size(text, "limit") == nbytes
    monkeypatch.setenv(budget.LIMIT, text)
    assert cache_limit() == nbytes


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1e9", "1GiB", "four", "1.2345GB"])
def test_what_is_no_size(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="limit: "):
        parse_size(text, "limit")
    monkeypatch.setenv(budget.LIMIT, text or "?")
    with pytest.raises(CheckpointError, match="ROPEWAY_CACHE_LIMIT: "):
        cache_limit()


def test_without_a_limit_nothing_goes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(budget.LIMIT, raising=False)
    assert cache_limit() is None
    assert make_room(cache, 1 << 50) == []
    assert names([kept.path for kept in kept_files(cache)]) == ["b.gguf", "c.gguf", "a.gguf", "d.safetensors.part"]


def test_the_longest_unused_goes_first(cache: Path) -> None:
    assert make_room(cache, 64 * KIB, 320 * KIB) == []
    assert names(make_room(cache, 65 * KIB, 320 * KIB)) == ["b.gguf"]
    assert names(make_room(cache, 200 * KIB, 320 * KIB)) == ["c.gguf", "a.gguf"]
    assert (cache / "models/demo.gguf").exists()
    assert (cache / "fetched/k/header/ropeway-origin.json").exists()


def test_what_was_used_just_now_goes_last(cache: Path) -> None:
    before = (cache / "slices/b.gguf").stat().st_mtime_ns
    touch(cache / "slices/b.gguf")
    assert (cache / "slices/b.gguf").stat().st_mtime_ns == before
    assert names(make_room(cache, 128 * KIB, 256 * KIB)) == ["c.gguf", "a.gguf"]
    touch(cache / "nothing")


def test_what_is_in_use_stays(cache: Path) -> None:
    lease = Lease(cache / "slices/b.gguf")
    with locked(cache / "fetched/k/whole/d.safetensors"):  # as whoever writes it does
        with pytest.raises(CheckpointError, match=r"may take 0\.3 MB; 0\.1 MB more do not fit beside 0\.1 MB that are"):
            make_room(cache, 140 * KIB, 256 * KIB)
        assert len(kept_files(cache)) == 4  # what does not help is not removed
        assert names(make_room(cache, 128 * KIB, 256 * KIB)) == ["c.gguf", "a.gguf"]
    lease.close()
    lease.close()
    Lease(cache / "nothing").close()
    assert names(make_room(cache, 140 * KIB, 256 * KIB)) == ["b.gguf"]


def test_what_another_process_uses_stays(cache: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ropeway.checkpoints.budget import Lease\n"
        "lease = Lease(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(cache / "slices/b.gguf")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert names(make_room(cache, 65 * KIB, 320 * KIB)) == ["c.gguf"]
        process.kill()
    assert names(make_room(cache, 129 * KIB, 320 * KIB)) == ["b.gguf"]


def test_what_is_kept_back_stays(cache: Path) -> None:
    removed = make_room(cache, 64 * KIB, 256 * KIB, keep=[cache / "slices/b.gguf", cache / "fetched"])
    assert names(removed) == ["a.gguf"]


def test_more_than_the_limit_removes_nothing(cache: Path) -> None:
    with pytest.raises(CheckpointError, match="raise ROPEWAY_CACHE_LIMIT"):
        make_room(cache, 300 * KIB, 256 * KIB)
    assert len(kept_files(cache)) == 4


def test_slices_keep_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = write_tiny(tmp_path / "tiny.gguf"), tmp_path / "cache"
    first = slice_stage(model, 0, 2, False, cache)
    size = first.stat().st_blocks * 512
    monkeypatch.setenv(budget.LIMIT, str(2 * size + size // 2))
    second = slice_stage(model, 2, 4, False, cache)
    assert slice_stage(model, 0, 2, False, cache) == first  # used again
    slice_stage(model, 1, 3, False, cache)
    assert first.exists()
    assert not second.exists()
    monkeypatch.setenv(budget.LIMIT, "1KB")
    with pytest.raises(CheckpointError, match="the cache may take"):
        slice_stage(model, 0, 3, False, cache)


def test_a_disk_that_is_too_full(tmp_path: Path) -> None:
    check_disk(tmp_path / "not" / "there", 1)
    with pytest.raises(CheckpointError, match=r"the disk is too full: \S+ GB are to be fetched, \S+ \S+ are free"):
        check_disk(tmp_path / "not" / "there", 1 << 60)
