"""A node's own directory: secrets that only their owner reads, and an agent that is there, or was."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ropeway.cluster.home import Home, Running, default_home, own_secret, read_secret, write_secret
from ropeway.transport.switched import listen


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


def test_one_agent_a_home_and_one_that_was_killed_is_cleared_up(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.running() is None
    home.take_over()
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    home.write_running(Running(os.getpid(), sockets))
    assert home.running() == Running(os.getpid(), sockets)
    with listen(sockets / "switch"), pytest.raises(ValueError, match="an agent runs here already"):
        home.take_over()
    home.take_over()
    assert home.running() is None
    assert not sockets.exists()


def test_contacts_are_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.read_contacts() == {}
    home.write_contacts({"ab" * 32: ",10.0.0.1:4"})
    assert home.read_contacts() == {"ab" * 32: ",10.0.0.1:4"}
    (tmp_path / "contacts.json").write_text("[1]")
    assert home.read_contacts() == {}
