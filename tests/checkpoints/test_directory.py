"""A checkpoint directory: its facts, its identity, whose bytes are read, and what is refused by name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from ropeway.checkpoints.checkpoint import Format, format_of, open_checkpoint, resolve_checkpoint
from ropeway.checkpoints.directory import DirectoryCheckpoint
from ropeway.checkpoints.errors import CheckpointError
from ropeway.types import Boundary, RowDtype
from tiny_safetensors import LLAMA, encode, llama_tensors, write_directory


def half(count: int = 2) -> list[dict[str, np.ndarray]]:
    """The weights in two files."""
    tensors = llama_tensors()
    names = list(tensors)
    return [{name: tensors[name] for name in names[:count]}, {name: tensors[name] for name in names[count:]}]


def test_facts(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "model", LLAMA, llama_tensors())
    assert resolve_checkpoint(str(path)) == path
    assert format_of(path) is Format.SAFETENSORS
    checkpoint = open_checkpoint(path)
    assert checkpoint.layers == 3
    assert checkpoint.boundary == Boundary(8, 1, RowDtype.F32)
    assert checkpoint.kv_row_bytes == 2 * 2 * 1 * 4
    assert not checkpoint.reads_tokens


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_configuration_names_the_dtype(tmp_path: Path, key: str) -> None:
    path = write_directory(tmp_path / "model", {**LLAMA, key: "bfloat16"}, llama_tensors())
    assert DirectoryCheckpoint(path).boundary.row_dtype is RowDtype.BF16


def test_residual_streams_and_token_readers(tmp_path: Path) -> None:
    text = {**LLAMA, "model_type": "qwen4_exp_text", "hc_count": 3, "ple_layer_ids": [2]}
    path = write_directory(tmp_path / "model", {"model_type": "qwen4_exp", "text_config": text}, llama_tensors())
    checkpoint = DirectoryCheckpoint(path)
    assert checkpoint.boundary.planes == 3
    assert checkpoint.reads_tokens


def test_several_files_with_an_index(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "model", LLAMA, *half())
    checkpoint = DirectoryCheckpoint(path)
    for name, values in llama_tensors().items():
        assert bytes(checkpoint.tensor_bytes(name)) == values.tobytes()


def test_only_what_is_asked_for_is_counted_as_read(tmp_path: Path) -> None:
    checkpoint = DirectoryCheckpoint(write_directory(tmp_path / "model", LLAMA, llama_tensors()))
    checkpoint.identity()
    assert checkpoint.touched_bytes == 0
    checkpoint.tensor_bytes("model.layers.1.mlp.up_proj.weight")
    assert checkpoint.touched_bytes == 16 * 8 * 4


def test_identity(tmp_path: Path) -> None:
    plain = DirectoryCheckpoint(write_directory(tmp_path / "a", LLAMA, llama_tensors()))
    split = DirectoryCheckpoint(write_directory(tmp_path / "b", {**LLAMA, "transformers_version": "9"}, *half()))
    assert plain.identity() == split.identity()
    assert plain.identity(verify_weights=True) == split.identity(verify_weights=True)
    assert plain.identity() != plain.identity(verify_weights=True)
    other = DirectoryCheckpoint(write_directory(tmp_path / "c", {**LLAMA, "rope_theta": 5.0}, llama_tensors()))
    assert other.identity() != plain.identity()
    tensors = llama_tensors()
    tensors["model.norm.weight"][3] = 2
    changed = DirectoryCheckpoint(write_directory(tmp_path / "d", LLAMA, tensors))
    assert changed.identity() != plain.identity()
    assert changed.identity(verify_weights=True) != plain.identity(verify_weights=True)


@pytest.mark.parametrize("layer", range(3))
def test_a_fine_tune_of_some_layers_is_another_checkpoint(tmp_path: Path, layer: int) -> None:
    tensors = llama_tensors()
    plain = DirectoryCheckpoint(write_directory(tmp_path / "plain", LLAMA, tensors))
    tensors[f"model.layers.{layer}.mlp.up_proj.weight"] *= 1.01
    tuned = DirectoryCheckpoint(write_directory(tmp_path / "tuned", LLAMA, tensors))
    assert tuned.identity() != plain.identity()


def test_the_canonical_form(tmp_path: Path) -> None:
    """Of two files, one of which has all but the embeddings; a matrix of 16 rows of 8 floats has 512 bytes."""
    tensors = llama_tensors()
    embeddings = {"model.embed_tokens.weight": tensors.pop("model.embed_tokens.weight")}
    checkpoint = DirectoryCheckpoint(
        write_directory(tmp_path / "m", {**LLAMA, "_name_or_path": "x"}, embeddings, tensors)
    )
    tensors |= embeddings
    pieces = {name: values.tobytes() for name, values in tensors.items()}
    pieces["model.embed_tokens.weight"] = pieces["model.embed_tokens.weight"][512:768]
    for layer in range(3):
        name = f"model.layers.{layer}.mlp.up_proj.weight"
        pieces[name] = pieces[name][256:]
    value = {
        "config": LLAMA,
        "samples": sorted([name, hashlib.sha256(piece).hexdigest()] for name, piece in pieces.items()),
        "tensors": sorted([name, "F32", list(values.shape)] for name, values in tensors.items()),
    }
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert checkpoint.identity() == hashlib.sha256(text.encode()).hexdigest()


def facts(checkpoint: DirectoryCheckpoint) -> tuple[int, Boundary, str]:
    return checkpoint.layers, checkpoint.boundary, checkpoint.model_type


def without(**changes: object) -> dict[str, object]:
    return {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (without(num_hidden_layers=None), "num_hidden_layers is None, expected a number of at least 1"),
        (without(num_hidden_layers="3"), "num_hidden_layers is '3'"),
        (without(hidden_size=0), "hidden_size is 0"),
        (without(model_type=None), "model_type is None, expected a name"),
        (without(dtype="int8"), "dtype is int8; float32, float16 and bfloat16 can be run"),
    ],
)
def test_configurations_that_are_refused(tmp_path: Path, config: dict[str, object], why: str) -> None:
    checkpoint = DirectoryCheckpoint(write_directory(tmp_path / "model", config, llama_tensors()))
    with pytest.raises(CheckpointError, match=why):
        facts(checkpoint)


def test_directories_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read"):
        DirectoryCheckpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json: is not JSON"):
        DirectoryCheckpoint(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json: is not a JSON object"):
        DirectoryCheckpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(CheckpointError, match="no safetensors file in this directory"):
        DirectoryCheckpoint(tmp_path)
    tensors = llama_tensors()
    del tensors["model.embed_tokens.weight"]
    with pytest.raises(CheckpointError, match=r"no tensor model\.embed_tokens\.weight"):
        assert DirectoryCheckpoint(write_directory(tmp_path, LLAMA, tensors)).boundary


def test_a_missing_tensor_has_its_name(tmp_path: Path) -> None:
    checkpoint = DirectoryCheckpoint(write_directory(tmp_path, LLAMA, llama_tensors()))
    with pytest.raises(CheckpointError, match=r"no tensor model\.layers\.9\.x"):
        checkpoint.tensor_bytes("model.layers.9.x")


def test_a_file_that_is_cut_off_has_its_name(tmp_path: Path) -> None:
    path = write_directory(tmp_path, LLAMA, llama_tensors())
    (path / "model.safetensors").write_bytes(encode(llama_tensors())[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: the file is cut off: tensor model\.norm\.weight"):
        DirectoryCheckpoint(path)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd"])
def test_an_index_names_files_beside_it_alone(tmp_path: Path, name: str) -> None:
    path = write_directory(tmp_path, LLAMA, *half())
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(CheckpointError, match="not the name of a file beside it"):
        DirectoryCheckpoint(path)


def test_an_index_that_promises_too_much(tmp_path: Path) -> None:
    path = write_directory(tmp_path, LLAMA, *half())
    index = path / "model.safetensors.index.json"
    value = json.loads(index.read_text())
    value["weight_map"]["model.layers.7.x"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=r"tensor model\.layers\.7\.x is in none of the files"):
        DirectoryCheckpoint(path)
