"""Key files: made once, private, and never quoted."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ropeway.launch.keys import read_key, write_key


def test_a_new_key_is_private_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "ring.key"
    write_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(read_key(path)) == 32


def test_two_keys_differ(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_key(tmp_path / name)
    assert read_key(tmp_path / "a") != read_key(tmp_path / "b")


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    write_key(tmp_path / "ring.key")
    with pytest.raises(ValueError, match="exists already"):
        write_key(tmp_path / "ring.key")


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ring.key"
    write_key(path)
    path.chmod(0o640)
    with pytest.raises(ValueError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize("text", ["", "hello", "ab" * 31, "ab" * 33, "zz" * 32])
def test_what_is_not_a_key_is_refused_without_being_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ring.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ValueError, match="not a key file") as caught:
        read_key(path)
    assert not text or text not in str(caught.value)


def test_a_missing_key_says_where(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        read_key(tmp_path / "nowhere")
