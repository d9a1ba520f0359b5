"""The conformance runner: what keeps the bridge passes it, what breaks a rule is caught by it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engines.kits import KITS, gguf
from engines.worker.commands import STUB, bad
from ropeway.engines.conformance.examine import Result, examine
from ropeway.engines.worker.setting import Role


def results(command: str, role: Role, model: str = "") -> dict[str, Result]:
    return {result.rule: result for result in examine(shlex.split(command), role, model, 60.0)}


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)
def test_the_stub_keeps_every_rule(role: Role) -> None:
    found = results(STUB, role)
    assert [f"{r.rule}: {r.why}" for r in found.values() if r.kept is False] == []
    undeclared = [rule for rule, result in found.items() if result.kept is None]
    assert undeclared == (["the head's logits"] if role is Role.MIDDLE else [])
    assert len(found) == 20


def test_what_is_not_declared_is_not_asked_for() -> None:
    found = results(f"{STUB} --lacks keep,save,head", Role.LAST)
    assert sum(result.kept is None for result in found.values()) == 3
    assert not any(result.kept is False for result in found.values())


@pytest.mark.parametrize(("engine", "role"), [("llamacpp", Role.FIRST), ("tinygrad", Role.MIDDLE)])
def test_an_engine_behind_the_pipe_keeps_every_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, role: Role
) -> None:
    next(kit for kit in KITS if kit.name == engine).need()
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    command = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker", "--engine", engine])
    found = results(command, role, str(gguf(tmp_path)))
    assert [f"{r.rule}: {r.why}" for r in found.values() if r.kept is False] == []
    assert len(found) == 20


def test_one_that_answers_anything_breaks_the_rules() -> None:
    """It has the shape of a last worker's ready line and answers every request with the same."""
    found = results(bad("yes"), Role.MIDDLE)
    assert found["a prompt and single rows behind it"].kept is False
    assert found["bad fields are refused"].kept is False
    assert found["STAGE=x NUM_STAGES=2 ends it with status 2"].kept is False


def test_one_that_does_not_start() -> None:
    (only,) = results(bad("no-start"), Role.LAST).values()
    assert only.kept is False
    assert "there is no such model" in only.why


@pytest.mark.parametrize(("command", "status", "last"), [(STUB, 0, "every rule kept"), (bad("no-start"), 1, "broken")])
def test_the_command(command: str, status: int, last: str) -> None:
    argv = [sys.executable, "-m", "ropeway.engines.conformance", "--role", "middle", "--", *shlex.split(command)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status
    assert last in done.stdout.splitlines()[-1]
