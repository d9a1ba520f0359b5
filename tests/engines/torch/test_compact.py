"""Our own module for llama's layer, and packed matrices, against the library's layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch
from torch import nn

from engines.torch.stages import config_of, prompt
from engines.torch.tiny_models import FAMILIES, LAYERS, write_model
from ropeway.engines.base import Logits, Span
from ropeway.engines.torch.compact import CompactLayer
from ropeway.engines.torch.engine import TorchEngine
from ropeway.engines.torch.four_bit import FourBit, FourBitLinear, joined, mlx_dequantized, mlx_four_bit
from ropeway.engines.torch.packing import PackedLinear, PairedLinear, can_pack
from ropeway.engines.whole import EngineWhole
from ropeway.verify.compare import kl

COMPACT = ("llama", "llama-tied", "mistral", "qwen2", "qwen3")
BF16 = pytest.mark.skipif(
    not can_pack(torch.device("cpu"), torch.bfloat16), reason="this processor does not multiply bf16 itself"
)


def logits_of(engine: TorchEngine) -> Logits:
    """A prompt in two parts, some steps, two streams in a round: every row."""
    whole = EngineWhole(engine)
    rows = [whole.forward([Span(0, 0, 40)], prompt(1, 40), range(40))]
    rows.append(whole.forward([Span(0, 40, 10)], prompt(2, 10), range(10)))
    rows += [whole.forward([Span(0, 50 + step, 1)], [step + 7], [0]) for step in range(5)]
    rows.append(whole.forward([Span(0, 55, 1), Span(1, 0, 6)], prompt(3, 7), range(7)))
    whole.close()
    return np.concatenate(rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("family", COMPACT)
def test_compact_layers_have_the_library_s_bits(tmp_path: Path, family: str, dtype: torch.dtype) -> None:
    config = config_of(write_model(tmp_path, family, dtype), LAYERS, parallel=2)
    ours, theirs = TorchEngine(config, pack=False), TorchEngine(config, pack=False, compact=False)
    assert logits_of(ours).tobytes() == logits_of(theirs).tobytes()


@BF16
@pytest.mark.parametrize("family", COMPACT)
def test_packed_compact_layers_have_the_packed_library_s_bits(tmp_path: Path, family: str) -> None:
    config = config_of(write_model(tmp_path, family, torch.bfloat16), LAYERS, parallel=2)
    assert logits_of(TorchEngine(config)).tobytes() == logits_of(TorchEngine(config, compact=False)).tobytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_who_is_compact(tmp_path: Path, family: str) -> None:
    engine = TorchEngine(config_of(write_model(tmp_path, family, torch.float32), LAYERS))
    engine.load()
    kinds = {isinstance(layer, CompactLayer) for layer in engine._loaded.layers.values()}
    assert kinds == {family in COMPACT}


@BF16
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_is_close_to_plain(tmp_path: Path, family: str) -> None:
    config = config_of(write_model(tmp_path, family, torch.bfloat16), LAYERS, parallel=2)
    plain, packed = logits_of(TorchEngine(config, pack=False)), logits_of(TorchEngine(config))
    assert np.mean([kl(a, b) for a, b in zip(plain, packed, strict=True)]) < 5e-3


def matrix(rows: int = 32, columns: int = 128, group: int = 32) -> FourBit:
    torch.manual_seed(0)
    values = torch.randint(0, 16, (rows, columns), dtype=torch.uint8)
    scales = torch.rand(rows, columns // group).bfloat16().float() * 0.1
    return FourBit(values, scales.bfloat16().float(), torch.randn(rows, columns // group).bfloat16().float() * 0.1)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("count", [1, 2, 5, 33])
def test_four_bit_products(group: int, count: int) -> None:
    four = matrix(group=group)
    linear = FourBitLinear(four, torch.arange(32).bfloat16())
    rows = torch.randn(1, count, 128).bfloat16()
    found = linear(rows).float()
    expected = rows.float() @ four.dequantized().T + torch.arange(32)
    assert found.shape == (1, count, 32)
    assert torch.allclose(found, expected, rtol=2e-2, atol=0.3)
    alone = torch.cat([linear(rows[:, index : index + 1]) for index in range(count)], dim=1).float()
    assert torch.equal(alone, found), "a row has the same bits in any company"


def test_joined_matrices() -> None:
    four = matrix()
    both = joined([four, four])
    rows = torch.randn(1, 3, 128).bfloat16()
    one, two = FourBitLinear(four, None)(rows), FourBitLinear(both, None)(rows)
    assert torch.equal(two, torch.cat([one, one], dim=-1))


@pytest.mark.parametrize("bits", [4, 8])
def test_mlx_s_packed_words(bits: int) -> None:
    values = torch.randint(0, 1 << bits, (4, 64))
    words = torch.zeros(4, 64 * bits // 32, dtype=torch.int64)
    for index in range(64):
        per = 32 // bits
        words[:, index // per] |= values[:, index] << (bits * (index % per))
    packed = torch.from_numpy(words.numpy().astype(np.uint32).view(np.int32))
    scales, biases = torch.rand(4, 1), torch.rand(4, 1)
    expected = values.float() * scales + biases
    assert torch.allclose(mlx_dequantized(packed, scales, biases, bits), expected)
    if bits == 4:
        assert torch.allclose(mlx_four_bit(packed, scales, biases).dequantized(), expected, atol=1e-5)


@BF16
def test_a_lone_row_has_the_bits_that_it_has_in_company() -> None:
    torch.manual_seed(1)
    plain = nn.Linear(96, 64, bias=True).bfloat16()
    for linear in (PackedLinear(plain, lone=True), PairedLinear(plain)):
        rows = torch.randn(1, 40, 96).bfloat16()
        with torch.inference_mode():
            together = linear(rows)
            for count in (1, 2, 3, 7):
                assert torch.equal(linear(rows[:, :count]), together[:, :count])
