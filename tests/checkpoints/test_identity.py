"""The identity: the same for the same model, another for another, and what it takes in."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.identity import checkpoint_identity, content_key
from tiny_gguf import TinyModel, write_tiny


def open_tiny(path: Path, model: TinyModel) -> GgufFile:
    return GgufFile.open(write_tiny(path, model))


def test_names_and_weights_do_not_change_the_identity_but_shape_and_metadata_do(tmp_path: Path) -> None:
    base = open_tiny(tmp_path / "a.gguf", TinyModel())
    fine_tune = open_tiny(tmp_path / "b.gguf", TinyModel(seed=1))
    assert base.metadata["general.name"] != fine_tune.metadata["general.name"]
    assert checkpoint_identity(base) == checkpoint_identity(fine_tune)
    others = [TinyModel(layers=4), TinyModel("qwen2"), TinyModel(tied=True), TinyModel(feed_forward=128)]
    identities = {checkpoint_identity(open_tiny(tmp_path / "c.gguf", other)) for other in others}
    assert len(identities | {checkpoint_identity(base)}) == 5


def test_with_the_weights_a_fine_tune_differs(tmp_path: Path) -> None:
    base = open_tiny(tmp_path / "a.gguf", TinyModel())
    again = open_tiny(tmp_path / "again.gguf", TinyModel())
    fine_tune = open_tiny(tmp_path / "b.gguf", TinyModel(seed=1))
    verified = checkpoint_identity(base, verify_weights=True)
    assert verified == checkpoint_identity(again, verify_weights=True)
    assert verified not in (checkpoint_identity(fine_tune, verify_weights=True), checkpoint_identity(base))


def test_the_canonical_form(tmp_path: Path) -> None:
    gguf = open_tiny(tmp_path / "a.gguf", TinyModel(layers=1))
    dropped = ("general.type", "general.name", "general.quantization_version")
    metadata = {key: hashlib.sha256(field.raw).hexdigest() for key, field in gguf.metadata.fields.items()}
    value = {
        "metadata": sorted([key, digest] for key, digest in metadata.items() if key not in dropped),
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
