"""Rings with worker processes, as a user starts them: the same tokens, refusals by name, and what a dying one does."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from end_to_end.commands import ropeway, ropeway_json
from engines.worker.commands import bad
from ropeway.cli.flags import EXIT_FAILED, EXIT_RING

PROGRAM = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker"])
LLAMACPP = f"{PROGRAM} --engine llamacpp"
LINES = {"hidden_dim": 64, "vocab_size": 320, "total_blocks": 6, "layer_range": [3, 6]}
"""Of a worker that fits the second half of the small model."""
RUN = ("hello", "--max-tokens", "16", "--threads", "1", "--context", "256")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "flags",
    [
        ("--engines", "llamacpp,worker"),
        ("--engines", "worker,llamacpp"),
        ("--engine", "worker", "--sampler", "last", "--stages", "3"),
    ],
    ids=" ".join,
)
def test_a_worker_gives_the_tokens_of_the_engine_that_it_has(small: str, flags: tuple[str, ...]) -> None:
    expected = ropeway_json("run", small, *RUN)
    found = ropeway_json("run", small, *RUN, *flags, "--worker-cmd", LLAMACPP)
    assert found["token_ids"] == expected["token_ids"]
    assert "worker" in [stage["engine"] for stage in found["stages"]]


def test_streams_that_a_worker_has_not_are_refused_by_name(small: str) -> None:
    plain = bad("ready", json.dumps(LINES))
    flags = ("--engines", "llamacpp,worker", "--worker-cmd", plain, "--parallel", "4")
    said = ropeway("run", small, *RUN, *flags, expect=EXIT_RING).stderr
    assert "parallel: rank 1 describes parallel 1, expected at least 4" in said


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer_range": [2, 6]}, "the worker has loaded layers 2..6, the layout gives this stage 3..6"),
        ({"hidden_dim": 32}, "the worker's rows have 32 values, the layout's 64"),
    ],
)
def test_a_worker_that_does_not_fit_is_refused_by_name(small: str, fields: dict[str, object], message: str) -> None:
    flags = ("--engines", "llamacpp,worker", "--worker-cmd", bad("ready", json.dumps(LINES | fields)))
    assert message in ropeway("run", small, *RUN, *flags, expect=EXIT_RING).stderr


def test_a_head_that_the_worker_has_not(small: str) -> None:
    first = bad("ready", json.dumps(LINES | {"layer_range": [0, 3], "stage": 0}))
    said = ropeway("run", small, *RUN, "--engines", "worker,llamacpp", "--worker-cmd", first, expect=EXIT_FAILED).stderr
    assert "use --sampler last" in said


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("killed", "was killed by SIGKILL; its last words: loading a model / of no use / out of memory"),
        ("garbage", "which is not JSON"),
        ("another", "sent a reply to request 2, expected 1"),
        ("endless", "wrote a line of over"),
        ("stopped", "has been stopped for 6 s; its last words: loading a model / of no use"),
    ],
)
def test_what_a_worker_does_wrong_ends_the_ring_with_its_reason(small: str, mode: str, message: str) -> None:
    flags = ("--engines", "llamacpp,worker", "--worker-cmd", bad(mode, json.dumps(LINES)))
    said = ropeway("run", small, *RUN, *flags, expect=EXIT_RING).stderr
    assert "ropeway: rank 0: engine_failed: rank 1 (127.0.0.1:" in said or "ropeway: engine_failed: rank 1" in said
    assert message in said


def test_a_command_is_needed(small: str) -> None:
    said = ropeway("run", small, *RUN, "--engine", "worker", expect=EXIT_FAILED).stderr
    assert "--worker-cmd 'PROGRAM ARGUMENTS'" in said


def test_a_certificate_of_a_mixed_ring(small: str, tmp_path: Path) -> None:
    """Made by one run, verified by another; another model and a changed figure are found."""
    key, file = str(tmp_path / "key"), tmp_path / "certificate.json"
    ropeway("key", "new", key)
    signing = ("--certificate-key", key, "--worker-cmd", LLAMACPP)
    work = ("--steps", "8", "--prompt-tokens", "70", "--part", "64", "--every-row", "--runs", "2", "--context", "256")
    made = ropeway_json(
        "check", small, "--engines", "llamacpp,worker", "--threads", "1", *work, "--certificate", str(file), *signing
    )
    assert made["same_bits"] is True
    assert made["steps"] == 77
    assert made["broken"] == []
    assert made["certificate"] == json.loads(file.read_text())["id"]
    assert ropeway_json("check", small, "--verify", str(file), *signing)["verified"] is True

    from ropeway.checkpoints.gguf_file import GgufFile

    other = tmp_path / "other.gguf"
    data = bytearray(Path(small).read_bytes())
    data[GgufFile.open(Path(small)).tensors["blk.5.ffn_down.weight"].offset + 5] ^= 1
    other.write_bytes(data)
    failed = ropeway_json("check", str(other), "--verify", str(file), *signing, expect=EXIT_FAILED)
    assert "another model: its bytes are not those of the certificate" in failed["failed"]
    file.write_text(file.read_text().replace('"steps": 77', '"steps": 78'))
    said = ropeway("check", small, "--verify", str(file), *signing, expect=2).stderr
    assert "its signature does not hold" in said
