"""A fault of our own, wherever it strikes, fails the run and still gives everything back, or names what is left."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from ropeway.launch.provider import Wanted
from ropeway.launch.vastai import VastAi
from ropeway.smoke.renting import Pace, Rental
from ropeway.smoke.reporter import Reporter
from ropeway.smoke.result import Result
from ropeway.smoke.run import RunSettings, new_label, smoke_run
from ropeway.smoke.watch import Watch
from smoke.fake_rented import KEY, SLEEPER
from smoke.fake_vast import FakeVast, fake_vast


@pytest.fixture
def fake() -> Iterator[FakeVast]:
    with fake_vast() as service:
        service.moods.command = SLEEPER
        service.burst_s = 0.0
        yield service


def run(fake: FakeVast, said: io.StringIO, **limits_s: float) -> Result:
    settings = RunSettings(
        Wanted(2), image="i", label=new_label(), pace=Pace(0.05, 0.05, 1.0), timeout_s=30.0, limits_s=limits_s
    )
    reporter = Reporter(Console(file=said))
    with VastAi(KEY, fake.url, gap_s=0.0, create_gap_s=0.0) as provider:
        return smoke_run(settings, provider, None, reporter)


def broken(*_: object) -> None:
    raise ZeroDivisionError("a fault of ours")


@pytest.mark.parametrize(
    ("where", "name", "step"),
    [(Rental, "await_running", "running"), (Watch, "missing_members", "converge"), (Rental, "_took", "create")],
)
def test_in_a_step(fake: FakeVast, monkeypatch: pytest.MonkeyPatch, where: type[object], name: str, step: str) -> None:
    monkeypatch.setattr(where, name, broken)
    said = io.StringIO()
    result = run(fake, said)
    assert (result.ok, result.reason) == (False, f"{step}: a fault of ours")
    assert "ZeroDivisionError" in said.getvalue()
    assert fake.ever
    assert fake.rented == []


def test_in_the_teardown(fake: FakeVast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropeway.smoke.run.destroy_all", broken)
    result = run(fake, io.StringIO(), converge=0.2)
    assert not result.ok
    assert [left.instance for left in result.left] == [*fake.rented, None]
    assert len(fake.rented) == 2


def test_a_terminal_that_has_gone_keeps_nothing_rented(fake: FakeVast) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    result = run(fake, Gone(), converge=0.2)
    assert "converge" in result.reason
    assert fake.rented == []


def test_a_log_that_does_not_come_does_not_hold_the_teardown_up(
    fake: FakeVast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropeway.smoke.run.LOGS_S", 0.2)
    fake.gates["logs"] = lambda _: fake._hang()
    said = io.StringIO()
    result = run(fake, said, converge=0.2)
    assert "it has not come within 0.2 s" in said.getvalue()
    assert result.left == ()
    assert fake.rented == []
