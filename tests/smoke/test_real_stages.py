"""Rented instances whose stages are real: the tokens of one process, models that each fetches, a stage that is lost."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from checkpoints.fetch.web_server import Site, serving
from end_to_end.commands import ropeway_json
from end_to_end.processes import children
from smoke.conftest import Runs
from smoke.fake_rented import NODE
from tiny_gguf import TinyModel, write_tiny

LONG = ("--max-tokens", "1900", "--timeout", "100")
"""A reply that lasts a while."""


@pytest.fixture(autouse=True)
def real_stages(runs: Runs) -> None:
    runs.moods(command=NODE)


def alone(model: str, max_tokens: int) -> list[int]:
    flags = ("--stages", "1", "--threads", "1", "--context", "2048", "--max-tokens", str(max_tokens))
    tokens: list[int] = ropeway_json("run", model, "Say hello", *flags)["token_ids"]
    return tokens


def test_the_tokens_are_those_of_one_process(runs: Runs, small: str) -> None:
    flags = ("--model", small, "--max-tokens", "24", "--threads", "1", "--timeout", "100")
    value = runs.result(runs.start("--num-stages", "3", *flags), 0)
    assert value["token_ids"] == alone(small, 24)
    assert runs.fake.rented == []


def test_stages_fetch_the_layers_that_they_hold(runs: Runs, tmp_path: Path) -> None:
    model = TinyModel(layers=12, width=256, feed_forward=512)
    path = write_tiny(tmp_path / "far.gguf", model)
    with serving(Site({"/far.gguf": path.read_bytes()})) as site:
        runs.moods(environment={"ROPEWAY_CACHE": str(tmp_path / "cache")})
        flags = ("--model", f"{site.url}/far.gguf", "--max-tokens", "8", "--threads", "1", "--timeout", "100")
        value = runs.result(runs.start(*flags), 0)
        assert 0 < site.sent < 1.6 * path.stat().st_size
    assert value["token_ids"] == alone(str(path), 8)


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_stage_lost_in_mid_decode(runs: Runs, small: str, stage: int, number: signal.Signals) -> None:
    process = runs.start("--model", small, "--threads", "1", *LONG)
    runs.fake.until(lambda: "answering a request" in runs.fake.of_stage(0).said())
    runs.fake.of_stage(stage).kill(number)
    struck = time.monotonic()
    value = runs.failed(process, "reply")
    assert any(f"{who}{stage}" in value["reason"] for who in ("stage ", "stage-", "rank ")), value["reason"]
    assert value["text"] == ""
    assert process.ended_at - struck < 60, "it did not wait for the run's own deadline"


def test_a_worker_killed_in_mid_decode(runs: Runs, small: str) -> None:
    process = runs.start("--model", small, "--threads", "1", *LONG)
    runs.fake.until(lambda: "answering a request" in runs.fake.of_stage(0).said())
    node = runs.fake.of_stage(1).process
    assert node is not None
    rank = next(child for child in children(node.pid) if "ropeway.smoke.rank_child" in child.args)
    os.kill(rank.pid, signal.SIGKILL)
    value = runs.failed(process, "reply", "stage")
    assert "1" in value["reason"]


def test_a_worker_behind_the_bridge_killed_in_mid_decode(runs: Runs, small: str) -> None:
    worker = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker", "--engine", "llamacpp"])
    flags = ("--model", small, "--threads", "1", "--engine", "worker", "--worker-cmd", worker)
    process = runs.start(*flags, *LONG)
    runs.fake.until(lambda: "answering a request" in runs.fake.of_stage(0).said())
    node = runs.fake.of_stage(1).process
    assert node is not None
    rank = next(child for child in children(node.pid) if "ropeway.smoke.rank_child" in child.args)
    worker_process = next(child for child in children(rank.pid) if "--engine" in child.args)
    os.kill(worker_process.pid, signal.SIGKILL)
    value = runs.failed(process, "reply", "stage 1", "SIGKILL")
    assert "worker" in value["reason"]
