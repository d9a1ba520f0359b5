"""Every family runs on what was fetched for its ranks alone: the tensors that are chosen by name are those it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch

from engines.torch.stages import Stages, config_of, prompt
from engines.torch.tiny_models import FAMILIES, LAYERS, write_model, write_next_token_head
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.local import LocalSource
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import local_offer
from ropeway.checkpoints.fetch.provide import Fetch
from ropeway.engines.base import Span
from ropeway.engines.torch.directory_source import DirectorySource
from ropeway.engines.torch.engine import TorchEngine

CUT = 2


class FetchedStages(Stages):
    """Two stages, each of its own copy."""

    def __init__(self, paths: Sequence[Path], *, chain: bool) -> None:
        self.chain = chain
        self.engines = []
        for path, need in zip(paths, needs(chain), strict=True):
            config = replace(config_of(path, LAYERS), first=need.first, end=need.end, embed=need.embed, head=need.head)
            engine = TorchEngine(config)
            engine.load()
            self.engines.append(engine)


def needs(chain: bool) -> list[Need]:
    return [Need(0, CUT, embed=True, head=not chain), Need(CUT, LAYERS, head=chain)]


@pytest.mark.parametrize("chain", [False, True], ids=["ring", "chain"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_runs_on_what_was_fetched(tmp_path: Path, family: str, chain: bool) -> None:
    path = write_model(tmp_path / "model", family, torch.bfloat16)
    paths, read = [], []
    for rank, need in enumerate(needs(chain)):
        fetch = Fetch(local_offer(path), tmp_path / f"cache{rank}", limit=None)
        paths.append(fetch.provide(need).path)
        read.append(fetch.taken.by_source)
    fetched, whole = FetchedStages(paths, chain=chain), Stages(config_of(path, LAYERS), (CUT,), chain=chain)
    for spans, rows in (([Span(0, 0, 20)], 20), ([Span(0, 20, 1)], 1)):
        tokens = prompt(rows, rows)
        ours, theirs = (model.forward(spans, tokens, [rows - 1]) for model in (fetched, whole))
        assert ours.tobytes() == theirs.tobytes()
    for engine in fetched.engines:
        source = engine._source
        assert isinstance(source, DirectorySource)
        copied = Path(engine._config.model)
        here = sum(copied.joinpath(file.name).stat().st_blocks * 512 for file in path.glob("*.safetensors"))
        assert source.touched_bytes <= here  # and hardly less: blocks and headers
        assert here <= 1.01 * source.touched_bytes + 64 * 4096
    with pytest.raises(CheckpointError, match="is not on this machine"):
        Stages(config_of(paths[1], LAYERS), (CUT,))


def test_a_next_token_head_goes_with_the_head(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", "qwen3_5", torch.bfloat16)
    write_next_token_head(path, "qwen3_5", torch.bfloat16)
    offer = local_offer(path)
    assert offer.weights == ["model-mtp.safetensors", "model.safetensors"]
    assert isinstance(offer.files["model-mtp.safetensors"][0], LocalSource)
    for need in needs(chain=False):
        copied = Fetch(offer, tmp_path / "cache", limit=None).provide(need).path
        source = DirectorySource(copied)
        if need.head:
            source.tensor("mtp.fc.weight", torch.Size((64, 128)))
        else:
            with pytest.raises(CheckpointError, match=r"tensor mtp\.fc\.weight is not on this machine"):
                source.tensor("mtp.fc.weight", torch.Size((64, 128)))
