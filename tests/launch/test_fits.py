"""A stage that a machine cannot hold is refused where it would be loaded, whatever placement was told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropeway.engines.base import EngineError
from ropeway.launch import fits
from ropeway.launch.fits import check_fits
from ropeway.launch.placement import Options, Placement, place
from ropeway.launch.rank0 import open_local
from tiny_gguf import TinyModel, write_tiny


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Placement:
    path = write_tiny(tmp_path_factory.mktemp("m") / "tiny.gguf", TinyModel(layers=4))
    return place(Options(str(path), stages=1, context=1000, parallel=2))


def test_weights_and_kv_are_held_against_the_memory(placement: Placement) -> None:
    engine = placement.make_engine(0)
    # a position of a layer: 2 KV heads of 16 values, keys and values of 2 bytes = 128 bytes; 2 x 1000 of 4 layers
    needed = engine.weights_bytes + 2 * 2 * 16 * 2 * engine.capacities.kv_rows * 4
    check_fits(placement, 0, engine, needed)
    with pytest.raises(EngineError, match=r"layers 0\.\.4 need .* GB of weights and KV, and this machine has"):
        check_fits(placement, 0, engine, needed - 1)
    engine.close()


def test_a_ring_is_not_loaded_past_the_memory(
    placement: Placement, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(fits, "memory_bytes", lambda: 1000)
    with pytest.raises(EngineError, match="of memory: give it fewer layers"), open_local(placement):
        raise AssertionError("it was loaded")
