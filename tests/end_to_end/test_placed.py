"""A reply from a ring that was placed by a nodes file, and what it took against what was predicted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from end_to_end.commands import ropeway, ropeway_json
from end_to_end.processes import Yard, wait_until
from end_to_end.serving_process import Server

NODES = """
[[node]]
name = "fast"
limit_gb = 4
decode_ms = 0.01
prompt_row_ms = 0.001

[[node]]
name = "slow"
limit_gb = 4
decode_ms = 0.02
prompt_row_ms = 0.002
"""


@pytest.fixture
def nodes(tmp_path: Path) -> str:
    (tmp_path / "nodes.toml").write_text(NODES)
    return str(tmp_path / "nodes.toml")


def test_the_cuts_of_a_reply_come_from_the_search(small: str, nodes: str) -> None:
    # 1,024 rows in 8 parts of 128: 4 of 6 layers on the node that is twice as fast
    asked = ("--place", nodes, "--goal", "prompt", "--part", "128")
    value = ropeway_json("run", small, "hello", "--raw", "--max-tokens", "40", *asked)
    assert [(stage["first"], stage["end"]) for stage in value["stages"]] == [(0, 4), (4, 6)]
    assert len(value["token_ids"]) == 40 or value["finish"] == "stop"
    if len(value["token_ids"]) == 40:
        told = value["prediction"]
        assert [stage["node"] for stage in told["stages"]] == ["fast", "slow"]
        assert told["measured_ms"] > 0
        assert told["ratio"] > 0
        assert told["rounds"] == 24


@pytest.mark.timeout(240)
def test_a_served_ring_is_held_against_its_prediction_and_told_where_to_cut(small: str, nodes: str, yard: Yard) -> None:
    """The nodes are said to take hundredths of a millisecond, which no stage does: the difference stands."""
    server = Server(yard, small, "--place", nodes, "--goal", "prompt", "--part", "128")
    server.become_ready()
    (stream,) = server.streams(1)

    def compared() -> bool:
        return bool(server.ask("GET", "/v1/ring").body["prediction"].get("cause"))

    wait_until(compared, said=server.process.said)
    told = server.ask("GET", "/v1/ring").body
    prediction = told["prediction"]
    assert [(stage["first"], stage["end"]) for stage in told["stages"]] == [(0, 4), (4, 6)]
    assert [stage["node"] for stage in prediction["stages"]] == ["fast", "slow"]
    assert prediction["ratio"] > 1.15
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        metrics = answer.read().decode()
    for name in ("measured_ms", "predicted_ms", "ratio"):
        assert re.search(rf"^ropeway_prediction_{name} [0-9.]+$", metrics, re.MULTILINE), name
    server.process.until(lambda process: "were predicted: " in process.err)
    url = f"http://127.0.0.1:{server.port}"
    value = ropeway_json("place", small, "--nodes", nodes, "--goal", "prompt", "--part", "128", "--from", url)
    running, best = value["running"], value["best"]
    assert [(stage["node"], stage["first"], stage["end"]) for stage in running["stages"]] == [
        ("fast", 0, 4),
        ("slow", 4, 6),
    ]
    assert 0 <= value["gain"] < 1
    assert best["cost"] == pytest.approx(running["cost"] * (1 - value["gain"]))
    assert not stream.ended.is_set()  # it is a proposal: the ring goes on as it was cut
    server.process.signal(signal.SIGTERM)
    assert server.process.status() == 0


def test_one_node_may_be_the_best_ring(small: str, nodes: str) -> None:
    value = ropeway_json("run", small, "hello", "--raw", "--max-tokens", "2", "--place", nodes)
    assert [(stage["first"], stage["end"]) for stage in value["stages"]] == [(0, 6)]


def test_cuts_by_hand_and_a_placement_are_too_much(small: str, nodes: str) -> None:
    said = ropeway("run", small, "hello", "--cuts", "3", "--place", nodes, expect=2).stderr
    assert "place: --cuts says where to cut already" in said
    ring = ("--ring", "127.0.0.1:1,127.0.0.1:2")
    assert "has the address 127.0.0.1:1" in ropeway("run", small, "x", "--place", nodes, *ring, expect=2).stderr
    assert "needs a nodes file" in ropeway("run", small, "x", "--place", "local", *ring, expect=2).stderr


def test_a_calibration_that_is_killed_leaves_nothing_half_done(small: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    args = ("calibrate", small, "--name", "here", "--threads", "1", "--deep", "128")
    command = [sys.executable, "-m", "ropeway", *args, "--limit-s", "60"]
    process = subprocess.Popen(command, env={**os.environ, "ROPEWAY_CACHE": str(cache)}, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: any(cache.glob("slices/*.gguf")))  # it is about to load and time them
    finally:
        process.kill()
        process.wait()
    assert not list(cache.glob("calibrations/*.json"))
    value = json.loads(ropeway(*args, "--limit-s", "1", "--json", ROPEWAY_CACHE=str(cache)).stdout)
    assert value["fresh"]
    assert len(list(cache.glob("calibrations/*.json"))) == 1
