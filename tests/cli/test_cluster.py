"""The commands of a cluster where there is none: what they say and how they leave, without any network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from ropeway.cli.app import app
from ropeway.cluster.settings import AgentSettings
from ropeway.cluster.ticket import Ticket
from ropeway.transport.iroh.endpoint import NodeAddress

TICKET = Ticket(bytes(range(32)), "ab" * 32, NodeAddress(("127.0.0.1:1",))).text()


def run(*args: str) -> tuple[int, str]:
    """Exit status and standard error."""
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.stderr


@pytest.mark.parametrize("command", [("nodes",), ("drain", "attic"), ("down",), ("down", "--all")])
def test_without_an_agent(command: tuple[str, ...], tmp_path: Path) -> None:
    status, said = run(*command, "--home", str(tmp_path))
    assert status == 1
    assert "no agent runs in" in said


def test_a_node_without_a_ticket_that_knows_no_cluster(tmp_path: Path) -> None:
    status, said = run("node", "--home", str(tmp_path / "new"))
    assert status == 2
    assert "knows no cluster yet" in said


@pytest.mark.parametrize("ticket", ["nonsense", TICKET[:-2], TICKET[:40] + "a" + TICKET[41:] + "7"])
def test_tickets_that_are_none(ticket: str, tmp_path: Path) -> None:
    status, said = run("node", ticket, "--home", str(tmp_path / "new"))
    assert status == 2
    assert "ticket: " in said
    assert TICKET[8:30] not in said


BROKEN = "\n  ".join((TICKET[:60], TICKET[60:130], TICKET[130:]))
"""As a terminal or a mail breaks it into lines."""


@pytest.mark.parametrize("said", [TICKET, BROKEN, f"{BROKEN}\r\n\r\nregards\n", TICKET.upper() + "\nregards"])
def test_a_ticket_is_taken_however_it_is_broken(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[AgentSettings] = []
    monkeypatch.setattr("ropeway.cli.up._be_a_node", lambda settings, **_: found.append(settings))
    home = ("--home", str(tmp_path / "new"))
    assert CliRunner().invoke(app, ["node", "-", *home], input=said).exit_code == 0
    if "regards" not in said:
        (tmp_path / "ticket.txt").write_text(f"\n{said}\n")
        assert run("node", str(tmp_path / "ticket.txt"), *home)[0] == 0
        monkeypatch.setenv("ROPEWAY_TICKET", f" {said}\n")
        assert run("node", *home)[0] == 0
    assert {Ticket.parse(settings.ticket) for settings in found} == {Ticket.parse(TICKET)}


@pytest.mark.parametrize("said", ["", "\n", "\n" + TICKET])
def test_an_empty_line_is_no_ticket(said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["node", "-", "--home", str(tmp_path / "new")], input=said)
    assert result.exit_code == 2
    assert "ticket: there is none in standard input" in result.stderr
    (tmp_path / "empty").write_text("")
    status, told = run("node", str(tmp_path / "empty"), "--home", str(tmp_path / "new"))
    assert status == 2
    assert "ticket: there is none in" in told


def test_a_home_that_others_can_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    status, said = run("up", "--home", str(tmp_path))
    assert status == 2
    assert "chmod 700" in said


def test_a_ticket_does_not_stay_among_the_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], str]] = []

    def execve(_path: str, arguments: list[str], environment: dict[str, str]) -> NoReturn:
        started.append((arguments, environment["ROPEWAY_TICKET"]))
        raise SystemExit(0)

    monkeypatch.setattr(sys, "argv", ["ropeway", "node", TICKET, "--home", str(tmp_path)])
    monkeypatch.setattr(os, "execve", execve)
    assert run("node", TICKET, "--home", str(tmp_path))[0] == 0
    assert started == [([sys.executable, "-m", "ropeway", "node", "--home", str(tmp_path)], TICKET)]
    assert os.environ.get("ROPEWAY_TICKET") is None


@pytest.mark.parametrize("flag", [("--ring", "a:1,b:2"), ("--key", "k"), ("--listen", "a:1"), ("--place", "local")])
def test_a_cluster_places_by_itself(flag: tuple[str, str], tmp_path: Path) -> None:
    status, said = run("serve", "demo", "--cluster", "--home", str(tmp_path), "--port", "0", *flag)
    assert status == 2
    assert "cluster: it places and joins its ring itself" in said
