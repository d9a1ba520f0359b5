"""A node's own directory: secrets that only their owner reads, and an agent that is there, or was."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ropeway.cluster.home import Home, Running, default_home, own_secret, read_secret, write_secret


def test_secrets_are_made_once_and_are_their_owners(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    secret = own_secret(path)
    assert len(secret) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert own_secret(path) == secret == read_secret(path)
    path.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600") as caught:
        read_secret(path)
    assert secret.hex() not in str(caught.value)


def test_what_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    with pytest.raises(ValueError, match="cannot be read"):
        read_secret(path)
    write_secret(path, "beef")
    with pytest.raises(ValueError, match="64 hex digits") as caught:
        read_secret(path)
    assert "beef" not in str(caught.value)


def test_a_home_that_others_can_read_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.make()
    assert stat.S_IMODE(home.directory.stat().st_mode) == 0o700
    home.directory.chmod(0o755)
    with pytest.raises(ValueError, match="chmod 700"):
        home.make()


def test_where_homes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWAY_HOME", "/a")
    assert default_home() == Path("/a")
    monkeypatch.delenv("ROPEWAY_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    assert default_home() == Path("/b/ropeway")


def test_one_agent_a_home(tmp_path: Path) -> None:
    home, same = Home(tmp_path), Home(tmp_path)
    with home.held():
        with pytest.raises(ValueError, match="an agent runs here already"), same.held():
            pass
        home.write_running(Running(os.getpid(), tmp_path))
        with pytest.raises(ValueError, match=rf"\(pid {os.getpid()}\)"), same.held():
            pass
        assert home.running() == Running(os.getpid(), tmp_path)
    with same.held():
        pass


HOLD = """
import sys
from pathlib import Path
from ropeway.cluster.home import Home, Running
home = Home(Path(sys.argv[1]))
with home.held():
    home.write_running(Running(1, Path(sys.argv[2])))
    print(flush=True)
    sys.stdin.read()
"""


def test_what_an_agent_left_that_was_killed_is_cleared_up(tmp_path: Path) -> None:
    home = Home(tmp_path)
    sockets = tmp_path / "ropeway-abc"
    sockets.mkdir()
    command = [sys.executable, "-c", HOLD, str(tmp_path), str(sockets)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(ValueError, match=r"\(pid 1\)"), home.held():
            pass
        assert sockets.exists()
        process.kill()
        process.wait()
    with home.held():
        assert home.running() is None
        assert not sockets.exists()


@pytest.mark.parametrize("sockets", ["", "ropeway-relative", "{home}/other"])
def test_a_note_that_is_damaged_costs_nobody_a_directory(
    sockets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("other", "ropeway-relative"):
        (tmp_path / name).mkdir()
    home = Home(tmp_path)
    home.write_running(Running(1, Path(sockets.format(home=tmp_path))))
    with home.held():
        assert home.running() is None
    assert (tmp_path / "other").exists()
    assert (tmp_path / "ropeway-relative").exists()


def test_a_secret_that_finds_no_room_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.key"
    write_secret(path, "before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_secret(path, "after")
    assert [kept.name for kept in tmp_path.iterdir()] == ["node.key"]
    assert path.read_text() == "before\n"
    with pytest.raises(ValueError, match=r"other\.key: .* cannot be written"):
        own_secret(tmp_path / "other.key")


def test_contacts_are_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.read_contacts() == {}
    home.write_contacts({"ab" * 32: ",10.0.0.1:4"})
    assert home.read_contacts() == {"ab" * 32: ",10.0.0.1:4"}
    (tmp_path / "contacts.json").write_text("[1]")
    assert home.read_contacts() == {}
