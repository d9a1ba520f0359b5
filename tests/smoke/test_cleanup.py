"""`--cleanup` with ledgers that are damaged, with others at work, and with runs side by side."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from smoke.conftest import Runs
from smoke.test_interruptions import SAID, hold_at


def killed_run(runs: Runs) -> Path:
    """A run that was killed while it had two instances; its ledger."""
    hold_at(runs, "running")
    process = runs.start()
    process.until(lambda p: SAID["running"] in p.err)
    process.signal(signal.SIGKILL)
    process.status()
    assert len(runs.fake.rented) == 2
    return runs.ledgers[0]


def test_lines_that_are_damaged_are_made_up_for_by_the_label(runs: Runs) -> None:
    ledger = killed_run(runs)
    first, *rest = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(first + b"".join(b"\x00" * len(line) + b"\n" for line in rest))
    cleanup = runs.cleanup("--reconcile", "0")
    assert cleanup.status() == 0, cleanup.said()
    assert f"is damaged: {len(rest)} lines cannot be read" in cleanup.err
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_a_ledger_that_does_not_name_its_service_is_held_against_ours_and_kept(runs: Runs) -> None:
    ledger = killed_run(runs)
    ledger.write_bytes(b"\xff\xfe garbage \n" + b"".join(ledger.read_bytes().splitlines(keepends=True)[1:]))
    cleanup = runs.cleanup("--reconcile", "0", "--server-url", runs.fake.url)
    assert cleanup.status() == 1, cleanup.said()
    assert "does not say which service it is about" in cleanup.err
    assert runs.fake.rented == [], "what our service has of it is gone all the same"
    assert runs.ledgers == [ledger]


def test_a_ledger_of_garbage_alone_is_found_by_its_name(runs: Runs) -> None:
    ledger = killed_run(runs)
    ledger.write_bytes(bytes(range(256)))
    assert runs.cleanup("--reconcile", "0", "--server-url", runs.fake.url).status() == 1
    assert runs.fake.rented == []
    assert runs.ledgers == [ledger]


def test_a_ledger_of_another_service_does_not_hold_up_the_others(runs: Runs) -> None:
    ledger = killed_run(runs)
    other = ledger.with_name("aaa.ledger")
    other.write_text(ledger.read_text().replace('"vastai"', '"elsewhere"').replace(ledger.stem, "aaa"))
    unsafe = ledger.with_name("bbb.ledger")
    unsafe.write_text(ledger.read_text().replace(runs.fake.url, "http://example.org").replace(ledger.stem, "bbb"))
    cleanup = runs.cleanup("--reconcile", "0")
    assert cleanup.status() == 1
    assert "'elsewhere' is no service that we know" in cleanup.err
    assert "'http://example.org' is neither https:// nor http:// to this machine" in cleanup.err
    assert runs.fake.rented == []
    assert runs.ledgers == [other, unsafe]


def test_two_cleanups_at_once(runs: Runs) -> None:
    killed_run(runs)
    asked, go_on = threading.Event(), threading.Event()

    def gate(_: object) -> None:
        asked.set()
        go_on.wait(60)

    runs.fake.gates["list"] = gate
    first = runs.cleanup()
    assert asked.wait(60)
    second = runs.cleanup()
    assert second.status() == 0, second.said()
    assert "this run, or a cleanup of it, is still under way" in second.err
    go_on.set()
    assert first.status() == 0, first.said()
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_two_runs_at_once_with_one_directory_and_one_label_keep_apart(runs: Runs) -> None:
    hold_at(runs, "reply")
    stays = runs.start("--label", "mine")
    stays.until(lambda p: SAID["reply"] in p.err)
    runs.moods(environment={})
    runs.result(runs.start("--label", "mine"), 0)
    assert len(runs.fake.ever) == 4
    assert runs.fake.rented == [rented.id for rented in runs.fake.ever[:2]], "a run destroys its own alone"
    stays.signal(signal.SIGTERM)
    runs.failed(stays, "terminated")
