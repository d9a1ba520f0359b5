"""Ctrl-C, SIGTERM and a lost terminal in every step, and SIGKILL: whatever happens, nothing stays rented."""

from __future__ import annotations

import os
import signal
from collections import deque
from pathlib import Path

import pytest

from smoke.conftest import Runs
from smoke.fake_rented import SLEEPER

STEPS = ("search", "node", "create", "running", "converge", "workers", "names", "reply", "destroy")
SAID = {
    "node": "starting the node here",
    "running": "waiting until every instance runs",
    "converge": "until every node has joined",
    "workers": "until every stage is loaded",
    "names": "waiting for pp-entry",
    "reply": "waiting for the reply",
    "destroy": "giving everything back",
}

SLOW_NODE = """
import time
from ropeway.smoke import run
run.open_cluster = lambda *_: time.sleep(60)
"""


def hold_at(runs: Runs, step: str) -> None:
    """Make the run stay in this step."""
    match step:
        case "search":
            runs.moods(searches=deque(["busy"]))
        case "create":
            runs.moods(creates=deque(["ok", "busy"]))
        case "running":
            runs.moods(instances={1: "never"})
        case "converge":
            runs.moods(commands={1: SLEEPER})
        case "workers":
            runs.moods(environment={"STUB_RANK": "never-loaded"})
        case "names":
            runs.moods(environment={"STUB_RANK": "never-whole"})
        case "reply":
            runs.moods(environment={"STUB_RANK": "slow"})
        case "destroy":
            runs.moods(destroys=deque(["broken", "broken", "broken", "ok"]))


@pytest.mark.parametrize("step", STEPS)
def test_ctrl_c_in_each_step_gives_everything_back(runs: Runs, step: str) -> None:
    hold_at(runs, step)
    process = runs.start(prelude=SLOW_NODE if step == "node" else "")
    if step == "search":
        runs.fake.until(lambda: runs.fake.asked("search"))
    elif step == "create":
        runs.fake.until(lambda: len(runs.fake.asked("create")) > 1)
    else:
        process.until(lambda p: SAID[step] in p.err)
    process.signal(signal.SIGINT)
    if step == "destroy":
        # The reply is there, and the teardown goes on to its end.
        value = runs.result(process, 0)
        assert value["ok"]
        assert runs.fake.rented == []
    else:
        value = runs.failed(process, f"{step}: interrupted")
        done = [entry["name"] for entry in value["steps"] if entry["name"] != "destroy"]
        assert done[-1] == step
        assert len(runs.fake.asked("create")) <= 2, "the signal is not put off until the next offer"
    assert runs.ledgers == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_do_the_same(runs: Runs, number: signal.Signals) -> None:
    hold_at(runs, "reply")
    process = runs.start()
    process.until(lambda p: SAID["reply"] in p.err)
    process.signal(number)
    runs.failed(process, "terminated" if number is signal.SIGTERM else "the terminal has gone")


def test_ctrl_c_at_a_terminal_reaches_every_process_of_ours(runs: Runs) -> None:
    hold_at(runs, "reply")
    process = runs.start(group=True)
    process.until(lambda p: SAID["reply"] in p.err)
    os.killpg(process.pid, signal.SIGINT)
    runs.failed(process, "reply: interrupted")


def test_more_signals_do_not_cut_the_teardown_short(runs: Runs) -> None:
    hold_at(runs, "reply")
    runs.moods(destroys=deque(["busy", "busy", "broken", "ok"]))
    process = runs.start()
    process.until(lambda p: SAID["reply"] in p.err)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        process.signal(number)
    process.until(lambda p: SAID["destroy"] in p.err)
    process.signal(signal.SIGINT)
    runs.failed(process, "interrupted")


def test_ctrl_c_while_a_create_is_under_way_waits_for_its_outcome(runs: Runs) -> None:
    runs.moods(creates=deque(["lost", "ok"]))
    process = runs.start("--request-timeout", "2")
    runs.fake.until(lambda: runs.fake.ever)
    process.signal(signal.SIGINT)
    value = runs.failed(process, "create", "interrupted")
    assert [rented["id"] for rented in value["instances"]] == [rented.id for rented in runs.fake.ever]
    assert len(runs.fake.ever) == 1


@pytest.mark.parametrize("step", ["create", "running", "reply"])
def test_an_orchestrator_that_is_killed_can_be_cleaned_up_after(runs: Runs, step: str) -> None:
    hold_at(runs, step)
    process = runs.start("--label", "killed")
    if step == "create":
        runs.fake.until(lambda: len(runs.fake.asked("create")) > 1)
    else:
        process.until(lambda p: SAID[step] in p.err)
    process.signal(signal.SIGKILL)
    process.status()
    assert runs.fake.rented
    assert len(runs.ledgers) == 1
    assert runs.ledgers[0].name.startswith("killed-")
    assert runs.ledgers[0].stat().st_mode & 0o777 == 0o600

    cleanup = runs.cleanup("--reconcile", "1")
    assert cleanup.status() == 0, cleanup.said()
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_a_create_that_rented_as_the_orchestrator_was_killed_is_found_by_its_label(runs: Runs) -> None:
    runs.moods(creates=deque(["lost"]))
    process = runs.start()
    runs.fake.until(lambda: runs.fake.ever)
    process.signal(signal.SIGKILL)
    process.status()
    assert '"created"' not in runs.ledgers[0].read_text()
    cleanup = runs.cleanup("--reconcile", "1")
    assert cleanup.status() == 0, cleanup.said()
    assert "the outcome of a create is not known" in cleanup.err
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_an_orchestrator_killed_between_a_creates_answer_and_the_ledger(runs: Runs) -> None:
    struck = "Ledger.created = lambda *_: os.kill(os.getpid(), 9)"
    process = runs.start(prelude=f"import os\nfrom ropeway.smoke.ledger import Ledger\n{struck}")
    assert process.status() == -signal.SIGKILL
    assert len(runs.fake.rented) == 1
    assert '"created"' not in runs.ledgers[0].read_text()
    cleanup = runs.cleanup("--reconcile", "1")
    assert cleanup.status() == 0, cleanup.said()
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_a_cleanup_lets_a_living_run_be(runs: Runs) -> None:
    hold_at(runs, "reply")
    process = runs.start()
    process.until(lambda p: SAID["reply"] in p.err)
    cleanup = runs.cleanup()
    assert cleanup.status() == 0, cleanup.said()
    assert "still under way" in cleanup.err
    assert len(runs.fake.rented) == 2
    process.signal(signal.SIGINT)
    runs.failed(process, "interrupted")


def test_a_cleanup_that_cannot_destroy_says_so_and_keeps_the_ledger(runs: Runs) -> None:
    hold_at(runs, "reply")
    process = runs.start()
    process.until(lambda p: SAID["reply"] in p.err)
    process.signal(signal.SIGKILL)
    process.status()
    runs.moods(destroys=deque(["stuck"]))
    cleanup = runs.cleanup("--limit", "destroy=2")
    assert cleanup.status() == 1
    assert "NOT DESTROYED" in cleanup.err
    assert len(runs.ledgers) == 1


def test_nodes_destroy_themselves_when_their_orchestrator_is_gone(runs: Runs, tmp_path: Path) -> None:
    hold_at(runs, "reply")
    hurry = tmp_path / "hurry"
    runs.moods(environment={"STUB_RANK": "slow", "STUB_HURRY": str(hurry)})
    process = runs.start()
    process.until(lambda p: SAID["reply"] in p.err)
    assert len(runs.fake.rented) == 2
    process.signal(signal.SIGKILL)
    process.status()
    assert len(runs.fake.rented) == 2
    hurry.touch()
    runs.fake.until(lambda: not runs.fake.rented)
    for rented in runs.fake.ever:
        assert "the orchestrator was not seen for 600 s" in rented.said()
        destroyed = [request for request in runs.fake.asked("destroy") if request.path.endswith(f"/{rented.id}/")]
        assert [request.headers["authorization"] for request in destroyed] == [f"Bearer {rented.key}"]
