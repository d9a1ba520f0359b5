"""Planted faults in a real ring of llama.cpp stages: each is found by `check`, and by which figure is written here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.engines.base import Engine
from ropeway.engines.llamacpp.engine import LlamaCppEngine
from ropeway.launch.drafting import DraftKind, DraftOptions, open_drafting
from ropeway.launch.placement import Options, place
from ropeway.verify.examine import Examined, examine
from ropeway.verify.limits import Limits
from ropeway.verify.reference import Reference
from ropeway.verify.repeat import Work
from serving.drafting.eager import free
from tiny_gguf import VOCABULARY, TinyModel, write_tiny
from verify.faults import Rounded, Stale, altered, one_layer_less
from verify.real_ring import real_ring

LAYERS = 6
TIGHT = Limits(kl_mean=1e-7, kl_p99=1e-6, kl_max=1e-5, max_abs_diff=1e-3, top1=0.99, top5=0.99)
"""Far below what is usual between engines: this ring gives the reference's bits unless it is spoiled."""


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=LAYERS, type=GgmlType.Q8_0))
    return Options(str(path), 2, context=256, chunk=64, threads=1)


def run(options: Options, spoil: Callable[[int, Engine], Engine], *, drafts: bool = False) -> Examined:
    rng = np.random.default_rng(3)
    phrase = rng.integers(3, VOCABULARY, 20).tolist()
    work = Work((tuple(phrase * 3),), 40, part=64, every_row=not drafts)
    with real_ring(options, spoil) as rank0:
        kind = DraftKind.NGRAM if drafts else DraftKind.NONE
        with open_drafting(DraftOptions(kind), rank0.placement) as drafting:
            if drafting is not None:
                free(drafting)
            return examine(rank0, work, Reference("llamacpp"), TIGHT, 1, drafting)


def names(examined: Examined) -> set[str]:
    return {line.split(":")[0] for line in examined.broken}


@pytest.mark.parametrize("drafts", [False, True])
def test_without_a_fault_every_bit_is_there(options: Options, drafts: bool) -> None:
    examined = run(options, lambda _, engine: engine, drafts=drafts)
    comparison = examined.outcome.comparison
    assert examined.broken == ()
    assert comparison.steps == comparison.equal_steps == (40 if drafts else 99)


def test_one_layers_weights_altered_by_one_percent(options: Options, tmp_path: Path) -> None:
    wrong = altered(Path(options.model), 4, 0.01, tmp_path / "wrong.gguf")
    placement = place(options)

    def spoil(rank: int, engine: Engine) -> Engine:
        return LlamaCppEngine(replace(placement.engine_config(1), model=str(wrong))) if rank == 1 else engine

    examined = run(options, spoil)
    assert {"bits", "kl_mean", "kl_p99", "kl_max", "max_abs_diff"} <= names(examined)
    assert examined.outcome.comparison.kl_mean > 1e-5


def test_rows_rounded_to_f16_on_one_boundary(options: Options) -> None:
    examined = run(options, lambda rank, engine: Rounded(engine) if rank == 0 else engine)
    assert {"bits", "max_abs_diff"} <= names(examined)
    assert 0 < examined.outcome.comparison.kl_mean < 1e-3


def test_one_layer_left_out(options: Options) -> None:
    placement = place(options)

    def spoil(rank: int, engine: Engine) -> Engine:
        return one_layer_less(placement.engine_config(1), LlamaCppEngine) if rank == 1 else engine

    examined = run(options, spoil)
    assert names(examined) == {"bits", "kl_mean", "kl_p99", "kl_max", "max_abs_diff", "top1", "top5"}
    assert {line.split(":")[0] for line in Limits().broken(examined.outcome.comparison, bits=False)} >= {
        "kl_mean",
        "top1",
        "top5",
    }, "the limits between engines find it too"


def test_a_stale_state_behind_a_rollback(options: Options) -> None:
    made: list[Stale] = []

    def spoil(rank: int, engine: Engine) -> Engine:
        if rank == 1:
            made.append(Stale(engine))
            return made[0]
        return engine

    examined = run(options, spoil, drafts=True)
    assert made[0].rollbacks > 3
    assert {"bits", "kl_max", "max_abs_diff"} <= names(examined)
