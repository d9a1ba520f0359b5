"""What an orchestrator may ask a node to run, and what it may not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ropeway.cluster.job import Job
from ropeway.launch.child import load_setup
from ropeway.transport import tcp

JOB: dict[str, Any] = {
    "ring": "a1b2c3",
    "rank": 1,
    "options": {"model": "demo", "stages": 2, "cuts": [15], "sampler": "first", "threads": 1, "engines": []},
    "addresses": ["attic:0", "cellar:1"],
    "key": "07" * 32,
    "bring_up_s": 60.0,
    "weights": {"text": "m.gguf", "keys": {"m.gguf": "ab" * 32}, "nodes": ["cd" * 32]},
}


def test_a_job_survives_the_way() -> None:
    job = Job.parse(JOB)
    assert job.dump() == JOB
    assert Job.parse(json.loads(json.dumps(job.dump()))) == job
    assert "07" * 4 not in repr(job)


def test_the_rank_process_reads_what_the_agent_writes() -> None:
    listener = tcp.listen("127.0.0.1:0")
    with listener:
        descriptor = listener.detach()
        options, setup = load_setup(Job.parse(JOB).setup(descriptor, "/run/ropeway/switch"))
        assert setup.listener is not None
        setup.listener.close()
    assert (options.model, options.cuts, options.threads) == ("demo", (15,), 1)
    assert (setup.rank, setup.addresses, setup.key) == (1, ("attic:0", "cellar:1"), b"\7" * 32)
    assert setup.switched is not None
    assert (str(setup.switched.switch), setup.switched.ring) == ("/run/ropeway/switch", "a1b2c3")


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("ring", "../../etc", "ring"),
        ("ring", "", "ring"),
        ("ring", "x" * 17, "ring"),
        ("ring", 7, "ring"),
        ("rank", 0, "rank"),
        ("rank", 2, "rank"),
        ("rank", True, "rank"),
        ("rank", "1", "rank"),
        ("addresses", ["attic:0"], "addresses"),
        ("addresses", ["attic:0", "cellar"], "address"),
        ("addresses", ["attic:0", 1], "addresses"),
        ("addresses", "attic:0,cellar:1", "addresses"),
        ("key", "07", "key"),
        ("key", None, "key"),
        ("key", "zz" * 32, "key"),
        ("bring_up_s", -1, "bring_up_s"),
        ("bring_up_s", 1e9, "bring_up_s"),
        ("options", ["model"], "options"),
        ("weights", [], "weights"),
        ("weights", {"keys": {"m": "short"}}, "weights"),
        ("weights", {"nodes": ["../../x"]}, "weights"),
        ("options", {"model": {"a": 1}}, "model"),
        ("options", {"model": "x" * 5000}, "model"),
        ("options", {"worker_cmd": "rm -rf /"}, "worker_cmd"),
    ],
)
def test_a_bad_field_is_refused_by_its_name(field: str, value: object, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        Job.parse({**JOB, field: value})
