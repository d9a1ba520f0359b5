"""A GGUF in the torch engine: the same model as llama.cpp's, in f32 and with its matrices in 4 bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

from engines.torch.stages import Stages, config_of, prompt
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.engines.base import EngineConfig, Logits, Span, Whole
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.engines.torch.engine import TorchEngine
from ropeway.engines.whole import EngineWhole
from ropeway.verify.compare import kl
from tiny_gguf import TinyModel, write_tiny

LAYERS = 5


def logits_of(whole: Whole) -> Logits:
    """A prompt in two parts and some steps: every row."""
    tokens = prompt(1, 50)
    rows = [whole.forward([Span(0, 0, 40)], tokens[:40], range(40))]
    rows.append(whole.forward([Span(0, 40, 10)], tokens[40:], range(10)))
    rows += [whole.forward([Span(0, 50 + step, 1)], [step + 7], [0]) for step in range(5)]
    whole.close()
    return np.concatenate(rows)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    return config_of(tmp_path / "tiny.gguf", LAYERS)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_close_to_llamacpp(config: EngineConfig, architecture: str, tied: bool) -> None:
    write_tiny(Path(config.model), TinyModel(architecture=architecture, layers=LAYERS, type=GgmlType.F32, tied=tied))
    theirs = logits_of(WholeModel(config))
    ours = logits_of(EngineWhole(TorchEngine(replace(config, dtype="f32"))))
    # llama.cpp keeps K and V in f16, and so differs by more than rounding in f32.
    assert max(kl(a, b) for a, b in zip(theirs, ours, strict=True)) < 1e-5
    assert (theirs.argmax(1) == ours.argmax(1)).mean() > 0.95


@pytest.mark.parametrize("kind", [GgmlType.Q4_0, GgmlType.Q4_1], ids=lambda kind: kind.name)
def test_four_bits_stay_four_bits(config: EngineConfig, kind: GgmlType) -> None:
    write_tiny(Path(config.model), TinyModel(layers=LAYERS, type=kind))
    wide = logits_of(EngineWhole(TorchEngine(replace(config, dtype="f32"))))
    plain = logits_of(EngineWhole(TorchEngine(replace(config, dtype="bf16"), pack=False)))
    packed = logits_of(EngineWhole(TorchEngine(replace(config, dtype="bf16"))))
    assert packed.tobytes() != plain.tobytes()
    for found in (plain, packed):
        assert max(kl(a, b) for a, b in zip(wide, found, strict=True)) < 2e-3


def test_a_split_has_the_whole_s_bits(config: EngineConfig) -> None:
    write_tiny(Path(config.model), TinyModel(layers=LAYERS, type=GgmlType.Q4_1))
    for dtype in ("f32", "bf16"):
        one = replace(config, dtype=dtype)
        whole, split = Stages(one, (), chain=True), Stages(one, (2, 3))
        for at, rows in ((0, 40), (40, 1), (41, 5)):
            tokens = prompt(at, rows)
            found = [model.forward([Span(0, at, rows)], tokens, range(rows)) for model in (whole, split)]
            assert found[0].tobytes() == found[1].tobytes()


def test_what_it_does_not_read(config: EngineConfig) -> None:
    write_tiny(Path(config.model), TinyModel(layers=LAYERS, rope_factors=True))
    with pytest.raises(CheckpointError, match=r"the engine torch does not read rope_f.*; use llamacpp"):
        TorchEngine(config)
    write_tiny(Path(config.model), TinyModel(layers=LAYERS, experts=4))
    with pytest.raises(CheckpointError, match="does not read a GGUF with experts; use llamacpp"):
        TorchEngine(config)
