"""`pp-smoke-run --local`: real stages, real rings, and the tokens that one process chooses."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest

from end_to_end.commands import ropeway_json
from end_to_end.processes import PROC, Yard, children, is_alive, wait_until
from ropeway.smoke.hidden import SECRETS

LIMIT_S = 110


def smoke(*flags: str, expect: int = 0, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "ropeway.cli.smoke_run", "--json", "--threads", "1", *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=os.environ | environment
    )
    assert done.returncode == expect, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def alone(model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    flags = ("--stages", "1", "--threads", "1", "--context", "2048", "--max-tokens", str(max_tokens))
    return ropeway_json("run", model, prompt, *flags)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_tiny_models_tokens_are_those_of_one_process(small: str, stages: int) -> None:
    value = smoke("--num-stages", str(stages), "--model", small, "--prompt", "the hello", "--max-tokens", "24")
    whole = alone(small, "the hello", 24)
    assert (value["token_ids"], value["text"]) == (whole["token_ids"], whole["text"])
    assert len({rented["id"] for rented in value["instances"]}) == stages
    assert all(rented["destroyed"] for rented in value["instances"])
    assert value["dollars"] == 0.0


@pytest.mark.model
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_the_demo_models_tokens_are_those_of_one_process(stages: int) -> None:
    value = smoke("--num-stages", str(stages))
    whole = alone("demo", "Say hello", 64)
    assert value["token_ids"] == whole["token_ids"]
    assert value["text"] == whole["text"]
    assert value["text"].strip()


WORKER = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker", "--engine", "llamacpp"])


@pytest.mark.parametrize("stages", [2, 3])
def test_workers_behind_the_process_bridge(small: str, stages: int) -> None:
    flags = ("--model", small, "--prompt", "the hello", "--max-tokens", "16", "--engine", "worker")
    value = smoke("--num-stages", str(stages), *flags, "--worker-cmd", WORKER)
    assert value["token_ids"] == alone(small, "the hello", 16)["token_ids"]


@pytest.mark.parametrize("engine", ["tinygrad", "worker"])
def test_tinygrad_workers(small: str, engine: str) -> None:
    pytest.importorskip("tinygrad", reason="the worker needs tinygrad (the extra of that name)")
    if not os.environ.get("CPU_LLVM") and shutil.which("clang") is None:
        pytest.skip("tinygrad's CPU device needs clang")
    value = smoke("--engine", engine, "--model", small, "--max-tokens", "4", "--prompt", "the hello")
    whole = ropeway_json(
        "run", small, "the hello", "--engine", "tinygrad", "--stages", "1", "--threads", "1", "--max-tokens", "4"
    )
    assert value["token_ids"] == whole["token_ids"]


def test_a_stage_that_cannot_load_is_named(small: str) -> None:
    value = smoke("--model", f"{small}.none", expect=1)
    assert "does not exist" in value["reason"]
    assert all(rented["destroyed"] for rented in value["instances"])


def test_more_stages_than_layers_are_refused(small: str) -> None:
    value = smoke("--num-stages", "7", "--model", small, expect=1)
    assert "outside 1..6" in value["reason"]


def test_no_process_outlives_an_orchestrator_that_is_killed(yard: Yard, small: str) -> None:
    command = [sys.executable, "-m", "ropeway.cli.smoke_run", "--model", small, "--max-tokens", "1900"]
    process = yard.start([*command, "--threads", "1"], "smoke")
    process.until(lambda p: "waiting for the reply" in p.err)
    nodes = children(process.pid)
    family = [*nodes, *(child for node in nodes for child in children(node.pid))]
    assert len(family) == 4, "two nodes with a rank each"
    assert not [seen for seen in family if "tcp:" in " ".join(seen.args)], "no argument list holds the ticket"
    process.signal(signal.SIGKILL)
    wait_until(lambda: not any(is_alive(seen.pid) for seen in family))


@pytest.mark.skipif(not PROC.exists(), reason="reads other processes' environments in /proc")
def test_ranks_are_told_no_secret(yard: Yard, small: str) -> None:
    command = [sys.executable, "-m", "ropeway.cli.smoke_run", "--model", small, "--max-tokens", "1900"]
    process = yard.start([*command, "--threads", "1"], "smoke", VAST_API_KEY="never-to-be-seen")
    process.until(lambda p: "waiting for the reply" in p.err)
    for node in children(process.pid):
        assert b"never-to-be-seen" not in (PROC / str(node.pid) / "environ").read_bytes()
        for rank in children(node.pid):
            held = (PROC / str(rank.pid) / "environ").read_bytes()
            assert not [name for name in SECRETS if f"{name}=".encode() in held]
