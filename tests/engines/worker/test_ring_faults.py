"""A worker that goes wrong in the middle of a round ends the ring on rank 0, with its rank's name and the reason."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engines.worker.commands import bad
from ropeway.engines.base import Engine
from ropeway.engines.worker.engine import WorkerEngine
from ropeway.launch.placement import Options, place
from ropeway.transport import RingLost
from ropeway.verify.repeat import Work, record
from tiny_gguf import TinyModel, write_tiny
from verify.real_ring import real_ring

LAYERS = 4
READY = {"hidden_dim": 64, "vocab_size": 320, "total_blocks": LAYERS, "layer_range": [2, LAYERS]}


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("killed", "was killed by SIGKILL; its last words: loading a model / of no use / out of memory"),
        ("stopped", "has been stopped for 0.5 s; its last words: loading a model / of no use"),
        ("garbage", "wrote b'Loading weights: 100%' where a reply is expected, which is not JSON"),
        ("endless", "wrote a line of over"),
        ("another", "sent a reply to request 2, expected 1"),
        ("late", "has not answered within its deadline; its last words: loading a model / of no use"),
    ],
)
def test_it_ends_the_ring_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, message: str) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=LAYERS))
    command = bad(mode, json.dumps(READY))
    options = Options(str(path), context=64, chunk=64, threads=1, engines=("llamacpp", "worker"), worker_cmd=command)
    request_s = 0.5 if mode == "late" else 60.0
    made: list[WorkerEngine] = []

    def hasty(rank: int, engine: Engine) -> Engine:
        if rank == 1:
            engine.close()
            made.append(WorkerEngine(place(options).engine_config(1), request_s=request_s, stopped_s=0.5))
            return made[0]
        return engine

    with pytest.raises(RingLost) as lost, real_ring(options, hasty) as rank0:
        record(rank0, Work(((5, 6, 7, 8),), 2, part=64))
    assert "engine_failed: rank 1: " in str(lost.value)
    assert message in str(lost.value)
    with pytest.raises(ProcessLookupError):
        os.kill(made[0].pid, 0)
