"""A rank's placement for a model that is elsewhere: what is fetched for whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoints.fetch.web_server import Site, serving
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.launch.fetching import place_rank, rank_need
from ropeway.launch.placement import Options, place
from ropeway.types import SamplerAt
from tiny_gguf import TinyModel, write_tiny

LAYERS = 6


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "far.gguf", TinyModel(layers=LAYERS, width=128, feed_forward=512))


@pytest.fixture
def options(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Options]:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    with serving(Site({"/far.gguf": model.read_bytes()})) as site:
        yield Options(f"{site.url}/far.gguf", stages=3, cuts=(2, 4))


def forms(tmp_path: Path) -> set[str]:
    return {path.parent.name for path in (tmp_path / "cache").rglob("*.gguf")}


@pytest.mark.parametrize(
    ("sampler", "needs"),
    [
        (SamplerAt.FIRST, [Need(0, 2, True, True), Need(2, 4), Need(4, 6)]),
        (SamplerAt.LAST, [Need(0, 2, True), Need(2, 4), Need(4, 6, head=True)]),
    ],
)
def test_what_each_rank_needs(model: Path, options: Options, sampler: SamplerAt, needs: list[Need]) -> None:
    local = place(replace(options, model=str(model), sampler=sampler))
    assert [rank_need(local, rank) for rank in range(3)] == needs
    for rank, need in enumerate(needs):
        placement = place_rank(replace(options, sampler=sampler), rank, 3)
        assert placement.layout == local.layout
        assert (placement.path.parent.name == "sampled-embed") == need.embed


def test_nothing_is_fetched_for_another_world(options: Options, tmp_path: Path) -> None:
    placement = place_rank(options, 1, 2)
    assert placement.layout.world == 3
    assert forms(tmp_path) == {"sampled-header"}


def test_an_engine_that_loads_no_slices_gets_a_copy(options: Options, tmp_path: Path) -> None:
    placement = place_rank(replace(options, engines=("torch",)), 1, 3)
    assert forms(tmp_path) == {"sampled-header", "sampled-2-4"}
    gguf = GgufFile.open(placement.path)
    assert gguf.tensor_bytes("blk.3.ffn_up.weight")
    with pytest.raises(CheckpointError, match=r"tensor blk\.4\.ffn_up\.weight is not on this machine"):
        gguf.tensor_bytes("blk.4.ffn_up.weight")


def test_a_model_that_is_here_is_left_where_it_is(model: Path, options: Options, tmp_path: Path) -> None:
    assert place_rank(replace(options, model=str(model)), 1, 3).path == model
    assert forms(tmp_path) == set()
