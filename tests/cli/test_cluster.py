"""The commands of a cluster where there is none: what they say and how they leave, without any network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from ropeway.cli.app import app
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
