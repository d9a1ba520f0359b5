"""The file that outlives a run."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from ropeway.smoke.ledger import Ledger, state_directory, unsettled


def test_a_ledger_says_what_was_rented_and_what_is_gone(tmp_path: Path) -> None:
    ledger = Ledger.begin("vastai", "https://example.org", "run-1", tmp_path)
    ledger.creating(10)
    ledger.created(7001)
    ledger.creating(11)
    ledger.created(7002)
    ledger.gone(7001)
    entries = ledger.entries()
    assert (entries.provider, entries.server, entries.label) == ("vastai", "https://example.org", "run-1")
    assert (entries.announced, entries.ids, entries.left) == (2, {7001, 7002}, {7002})
    ledger.close(settled=False)


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    ledger = Ledger.begin("vastai", "", "run-1", tmp_path)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.path.parent.stat().st_mode) == 0o700
    ledger.close(settled=True)
    assert list(unsettled(tmp_path)) == []


def test_every_line_is_on_the_disk_before_the_call_it_announces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    ledger = Ledger.begin("vastai", "", "run-1", tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    ledger.creating(10)
    assert synced == [ledger.path.stat().st_size]
    ledger.close(settled=False)


def test_a_living_run_keeps_its_ledger(tmp_path: Path) -> None:
    ledger = Ledger.begin("vastai", "", "run-1", tmp_path)
    assert Ledger.take_over(ledger.path) is None
    ledger.close(settled=False)
    taken = Ledger.take_over(ledger.path)
    assert taken is not None
    assert taken.entries().label == "run-1"
    taken.close(settled=True)
    assert Ledger.take_over(ledger.path) is None


def test_a_line_that_a_crash_cut_off_counts_as_a_create(tmp_path: Path) -> None:
    ledger = Ledger.begin("vastai", "", "run-1", tmp_path)
    ledger.creating(1)
    ledger.created(7001)
    assert not ledger.entries().unclear
    ledger.close(settled=False)
    with ledger.path.open("a") as file:
        file.write('{"event": "crea')
    taken = Ledger.take_over(ledger.path)
    assert taken is not None
    entries = taken.entries()
    assert (entries.ids, entries.unreadable, entries.unclear) == ({7001}, 1, True)
    taken.close(settled=True)


def test_a_create_that_was_refused_is_not_looked_for(tmp_path: Path) -> None:
    ledger = Ledger.begin("vastai", "", "run-1", tmp_path)
    assert ledger.entries().nothing
    ledger.creating(1)
    assert ledger.entries().unclear
    ledger.refused()
    assert not ledger.entries().unclear
    assert not ledger.entries().nothing
    ledger.close(settled=True)


def test_a_file_without_a_readable_line_is_not_nothing(tmp_path: Path) -> None:
    ledger = Ledger.begin("vastai", "", "run-1", tmp_path)
    ledger.close(settled=False)
    ledger.path.write_bytes(b"\x00" * 40)
    taken = Ledger.take_over(ledger.path)
    assert taken is not None
    entries = taken.entries()
    assert (entries.provider, entries.label, entries.nothing) == ("", "run-1", False)
    taken.close(settled=True)


def test_a_cleanup_that_takes_the_empty_file_away_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "smoke-run" / "run-1.ledger"
    lock, taken = fcntl.flock, 0

    def late(descriptor: int, how: int) -> None:
        nonlocal taken
        taken += 1
        if taken == 1:
            path.unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    ledger = Ledger.begin("vastai", "", "run-1", tmp_path)
    assert taken == 2
    ledger.creating(1)
    assert '"creating"' in path.read_text()
    ledger.close(settled=True)


@pytest.mark.parametrize("label", ["", "../up", "a/b", ".hidden", "x" * 101, "new\nline"])
def test_a_label_is_a_plain_name(tmp_path: Path, label: str) -> None:
    with pytest.raises(ValueError, match="label"):
        Ledger.begin("vastai", "", label, tmp_path)


def test_a_label_is_taken_once(tmp_path: Path) -> None:
    Ledger.begin("vastai", "", "run-1", tmp_path).close(settled=False)
    with pytest.raises(ValueError, match="--cleanup"):
        Ledger.begin("vastai", "", "run-1", tmp_path)


def test_the_oldest_comes_first(tmp_path: Path) -> None:
    for number, label in enumerate(("second", "first")):
        ledger = Ledger.begin("vastai", "", label, tmp_path)
        ledger.close(settled=False)
        os.utime(ledger.path, (1000 - number, 1000 - number))
    assert [path.stem for path in unsettled(tmp_path)] == ["first", "second"]


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWAY_STATE", str(tmp_path))
    assert state_directory() == tmp_path
