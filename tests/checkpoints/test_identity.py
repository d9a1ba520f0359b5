"""The identity: the same for the same model, another for another, and what it takes in."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.identity import checkpoint_identity, content_key
from tiny_gguf import TinyModel, write_tiny


def open_tiny(path: Path, model: TinyModel) -> GgufFile:
    return GgufFile.open(write_tiny(path, model))


def changed(path: Path, to: Path, name: str) -> GgufFile:
    """A copy of a model in which one tensor has other values in every byte."""
    data, info = bytearray(path.read_bytes()), GgufFile.open(path).tensors[name]
    for at in range(info.offset, info.offset + info.nbytes):
        data[at] ^= 1
    to.write_bytes(data)
    return GgufFile.open(to)


def test_names_do_not_change_the_identity_but_weights_shapes_and_metadata_do(tmp_path: Path) -> None:
    base = open_tiny(tmp_path / "a.gguf", TinyModel())
    raw = base.path.read_bytes()
    at = raw.index(b"tiny llama 0")
    (tmp_path / "named.gguf").write_bytes(raw[:at] + b"Tiny" + raw[at + 4 :])
    named = GgufFile.open(tmp_path / "named.gguf")
    assert base.metadata["general.name"] != named.metadata["general.name"]
    assert checkpoint_identity(base) == checkpoint_identity(named)
    others = [TinyModel(layers=4), TinyModel("qwen2"), TinyModel(tied=True), TinyModel(feed_forward=128)]
    identities = {checkpoint_identity(open_tiny(tmp_path / "c.gguf", other)) for other in (*others, TinyModel(seed=1))}
    assert len(identities | {checkpoint_identity(base)}) == 6


@pytest.mark.parametrize("layer", [0, 2, 4])
@pytest.mark.parametrize("part", ["attn_norm", "attn_q", "attn_k", "attn_v", "ffn_down"])
def test_one_matrix_of_a_fine_tune_is_enough(tmp_path: Path, part: str, layer: int) -> None:
    """Of the middle layer, the last and the first: each kind of tensor is sampled there."""
    base = open_tiny(tmp_path / "a.gguf", TinyModel(layers=5))
    tuned = changed(base.path, tmp_path / "b.gguf", f"blk.{layer}.{part}.weight")
    assert checkpoint_identity(tuned) != checkpoint_identity(base)


def test_a_quantization_with_the_same_types_is_another_checkpoint(tmp_path: Path) -> None:
    """As with and without an importance matrix: the same tensors and types, other scales."""
    base = open_tiny(tmp_path / "a.gguf", TinyModel(type=GgmlType.Q4_0))
    raw = bytearray(base.path.read_bytes())
    for info in base.tensors.values():
        if info.type is GgmlType.Q4_0:
            for at in range(info.offset, info.offset + info.nbytes, info.type.block_bytes):
                raw[at] ^= 1
    (tmp_path / "b.gguf").write_bytes(raw)
    assert checkpoint_identity(GgufFile.open(tmp_path / "b.gguf")) != checkpoint_identity(base)


def test_with_the_weights_any_byte_counts(tmp_path: Path) -> None:
    base = open_tiny(tmp_path / "a.gguf", TinyModel())
    again = open_tiny(tmp_path / "again.gguf", TinyModel())
    fine_tune = changed(base.path, tmp_path / "b.gguf", "blk.1.attn_q.weight")
    assert checkpoint_identity(fine_tune) == checkpoint_identity(base)  # layer 1 is not sampled
    verified = checkpoint_identity(base, verify_weights=True)
    assert verified == checkpoint_identity(again, verify_weights=True)
    assert verified not in (checkpoint_identity(fine_tune, verify_weights=True), checkpoint_identity(base))


def test_the_canonical_form(tmp_path: Path) -> None:
    gguf = open_tiny(tmp_path / "a.gguf", TinyModel(layers=1))
    dropped = ("general.type", "general.name", "general.quantization_version")
    metadata = {key: hashlib.sha256(field.raw).hexdigest() for key, field in gguf.metadata.fields.items()}
    samples = {}
    for name, info in gguf.tensors.items():
        start = 0 if info.nbytes <= 256 else info.nbytes // 2 // 64 * 64
        samples[name] = gguf.tensor_bytes(name)[start : start + 256]
    value = {
        "metadata": sorted([key, digest] for key, digest in metadata.items() if key not in dropped),
        "samples": sorted([name, hashlib.sha256(piece).hexdigest()] for name, piece in samples.items()),
        "tensors": sorted([info.name, info.type.name, list(info.shape)] for info in gguf.tensors.values()),
    }
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert checkpoint_identity(gguf) == hashlib.sha256(text.encode()).hexdigest()


def test_the_content_key_tells_fine_tunes_and_times_apart(tmp_path: Path) -> None:
    def key(name: str, model: TinyModel, time_ns: int) -> str:
        gguf = open_tiny(tmp_path / name, model)
        os.utime(gguf.path, ns=(time_ns, time_ns))
        return content_key(gguf, gguf.tensors.values())

    same = key("a.gguf", TinyModel(), 10**18)
    assert key("b.gguf", TinyModel(), 10**18) == same
    assert key("c.gguf", TinyModel(seed=1), 10**18) != same
    assert key("d.gguf", TinyModel(), 10**18 + 10**9) != same
