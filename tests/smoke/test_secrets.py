"""The account's key and the run's ticket, while a run is under way: in no list of processes, environment or file."""

from __future__ import annotations

import os
import signal

import pytest

from end_to_end.processes import PROC, Seen, children
from smoke.conftest import Runs
from smoke.fake_rented import KEY
from smoke.test_interruptions import SAID, hold_at


def family(pid: int) -> list[Seen]:
    """Every process that came of this one."""
    return [one for child in children(pid) for one in (child, *family(child.pid))]


@pytest.mark.skipif(not PROC.exists(), reason="reads other processes' environments in /proc")
def test_no_process_shows_the_key_or_the_ticket(runs: Runs) -> None:
    hold_at(runs, "reply")
    process = runs.start()
    process.until(lambda p: SAID["reply"] in p.err)
    nodes = [rented.process.pid for rented in runs.fake.ever if rented.process is not None]
    ticket = runs.fake.ever[0].body["env"]["SEED_ADDR"]
    key, secret = KEY.encode(), ticket.encode()
    ours = family(process.pid)
    theirs = [one for node in nodes for one in family(node)]
    if os.environ.get("SMOKE_CLUSTER") == "iroh":
        assert len(ours) == 1, "the node of the orchestrator"
        assert len(theirs) == 2, "the node's agent of each stage"
    for pid in (process.pid, *nodes, *(one.pid for one in (*ours, *theirs))):
        shown = (PROC / str(pid) / "cmdline").read_bytes()
        assert key not in shown
        assert secret not in shown
    for pid in (*nodes, *(one.pid for one in (*ours, *theirs))):
        held = (PROC / str(pid) / "environ").read_bytes()
        assert key not in held
        assert (secret in held) == (pid in nodes), "a node is told its ticket, and tells nobody"
    for path in runs.ledgers:
        assert KEY not in path.read_text()
        assert ticket not in path.read_text()
    process.signal(signal.SIGINT)
    runs.failed(process, "interrupted")
    assert ticket not in process.out + process.err
    for rented in runs.fake.ever:
        assert KEY not in rented.said()
        assert ticket not in rented.said()
