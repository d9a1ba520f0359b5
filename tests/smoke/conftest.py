"""A fake of the service, and the command run against it as a user would run it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.processes import Process, Yard
from smoke.fake_rented import HERE, KEY
from smoke.fake_vast import FakeVast, fake_vast
from tiny_gguf import TinyModel, write_tiny

LIMIT_S = 110.0
"""For a whole run: longer than its own deadline, shorter than the test's."""


class Runs:
    """Starts `pp-smoke-run` against a fake; the key is in its environment, its state in the test's directory."""

    def __init__(self, yard: Yard, fake: FakeVast, state: Path) -> None:
        self.yard = yard
        self.fake = fake
        self.state = state
        self.at_its_pace = False
        """Ask the service as the command does, and not as quickly as it answers."""

    def moods(self, **moods: Any) -> None:
        """What the service will do."""
        for name, mood in moods.items():
            assert hasattr(self.fake.moods, name)
            setattr(self.fake.moods, name, mood)

    def start(self, *flags: str, group: bool = False, prelude: str = "", **environment: str) -> Process:
        """With `--json` and quick looks; `flags` come last, so that they win. SMOKE_CLUSTER says how nodes meet.

        `group` makes it the leader of a group of processes, as a shell does. The Python text `prelude` runs first.
        """
        cluster = os.environ.get("SMOKE_CLUSTER", "tcp")
        command = [*self._command(prelude), "--vastai", "--server-url", self.fake.url, "--cluster", cluster, "--json"]
        command += ["--image", "ropeway/test", "--model", "any", "--poll", "0.2"]
        command += ["--timeout", "100", "--limit", "node=90", *flags]
        if group:
            lead = "import os, sys\nos.setsid()\nos.execv(sys.argv[1], sys.argv[1:])"
            command = [sys.executable, "-c", lead, *command]
        return self.yard.start(command, "smoke", **self.environment(), **environment)

    def cleanup(self, *flags: str) -> Process:
        """`pp-smoke-run --cleanup`."""
        return self.yard.start([*self._command(), "--cleanup", *flags], "cleanup", **self.environment())

    def _command(self, prelude: str = "") -> list[str]:
        if prelude:
            quick = f"import runpy\nrunpy.run_path({str(HERE / 'quick_run.py')!r}, run_name='__main__')"
            self.fake.burst_s = 0.0
            return [sys.executable, "-c", f"{prelude}\n{quick}"]
        if self.at_its_pace:
            return [sys.executable, "-m", "ropeway.cli.smoke_run"]
        self.fake.burst_s = 0.0
        return [sys.executable, str(HERE / "quick_run.py")]

    def environment(self) -> dict[str, str]:
        return {"VAST_API_KEY": KEY, "ROPEWAY_STATE": str(self.state), "COLUMNS": "80"}

    @property
    def ledgers(self) -> list[Path]:
        """What runs have not settled."""
        return sorted(self.state.glob("smoke-run/*"))

    def result(self, process: Process, status: int) -> dict[str, Any]:
        """The one JSON object of a run that has ended with this status. No word of it holds the key."""
        assert process.status(LIMIT_S) == status, process.said()
        assert KEY not in process.out + process.err
        lines = process.out.splitlines()
        assert len(lines) == 1, process.said()
        value: dict[str, Any] = json.loads(lines[0])
        return value

    def failed(self, process: Process, *words: str) -> dict[str, Any]:
        """A run that failed for this reason, and that has left nothing rented and nothing to settle."""
        value = self.result(process, 1)
        assert value["ok"] is False
        for word in words:
            assert word in value["reason"], value["reason"]
        assert self.fake.rented == []
        assert self.ledgers == []
        assert all(instance["destroyed"] for instance in value["instances"])
        return value


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("small") / "small.gguf", TinyModel(layers=6)))


@pytest.fixture
def fake() -> Iterator[FakeVast]:
    with fake_vast() as service:
        yield service


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    here = Yard(tmp_path)
    try:
        yield here
    finally:
        here.end()


@pytest.fixture
def runs(yard: Yard, fake: FakeVast, tmp_path: Path) -> Runs:
    return Runs(yard, fake, tmp_path / "state")
