"""A checkpoint directory as Hugging Face writes it: config.json, safetensors files with an index or without.

Headers and JSON are read when it is opened; a tensor's bytes when they are asked for, which is counted.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from ropeway.checkpoints.checkpoint import Format
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.identity import digest_of
from ropeway.checkpoints.safetensors_file import Dtype, SafetensorsFile, TensorEntry
from ropeway.checkpoints.samples import Sample, choose_samples, sample_digests
from ropeway.types import Boundary, RowDtype

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
EMBEDDINGS: Final = ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight")
"""Names that the embedding matrix goes by: of a text model, and of the text part of a model that also sees."""

_PASSING = frozenset({"transformers_version", "_name_or_path"})
"""Keys of config.json that say nothing about the model."""
_ROW_DTYPES: Final = {
    "float32": RowDtype.F32,
    "float16": RowDtype.F16,
    "bfloat16": RowDtype.BF16,
    Dtype.F32.label: RowDtype.F32,
    Dtype.F16.label: RowDtype.F16,
    Dtype.BF16.label: RowDtype.BF16,
}
_CHUNK_BYTES = 16 << 20


class DirectoryCheckpoint:
    """A directory with a model. Raises CheckpointError where it is none, or where a file is not whole."""

    format = Format.SAFETENSORS

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = read_json(path / CONFIG)
        text = self.config.get("text_config", self.config)
        if not isinstance(text, dict):
            raise CheckpointError(f"{path / CONFIG}: text_config is not an object")
        self.text_config: dict[str, Any] = text
        self._files = _open_files(path)
        self.tensors: dict[str, TensorEntry] = {}
        self._file_of: dict[str, SafetensorsFile] = {}
        for file in self._files:
            self.tensors |= file.tensors
            self._file_of |= dict.fromkeys(file.tensors, file)
        self.touched_bytes = 0
        """Bytes of the tensors that were asked for so far."""

    @property
    def model_type(self) -> str:
        """The family, as transformers calls it: that of the text part."""
        return self._text("model_type")

    @property
    def layers(self) -> int:
        """As `Checkpoint`."""
        return self.integer("num_hidden_layers")

    @property
    def planes(self) -> int:
        """Residual streams side by side (`hc_count` of qwen4_exp); 1 for all others."""
        return self.integer("hc_count", 4) if self.model_type.startswith("qwen4_exp") else 1

    @property
    def reads_tokens(self) -> bool:
        """Some layer reads token ids."""
        return bool(self.text_config.get("ple_layer_ids"))

    @property
    def row_dtype(self) -> RowDtype:
        """The dtype of the model's weights, which is that of its rows."""
        for config in (self.text_config, self.config):
            for key in ("dtype", "torch_dtype"):
                if key in config:
                    return self._row_dtype(str(config[key]), key)
        return self._row_dtype(self.tensors[self.embeddings].dtype.label, self.embeddings)

    @property
    def boundary(self) -> Boundary:
        """As `Checkpoint`."""
        return Boundary(self.integer("hidden_size"), self.planes, self.row_dtype)

    @property
    def kv_row_bytes(self) -> int:
        """As `Checkpoint`; layers that keep a recurrent state instead are counted as if they kept keys and values."""
        heads = self.integer("num_attention_heads")
        size = self.integer("head_dim", self.integer("hidden_size") // heads)
        return 2 * 2 * self.integer("num_key_value_heads", heads) * size

    @property
    def embeddings(self) -> str:
        """The name of the embedding matrix. Raises CheckpointError where there is none."""
        found = [name for name in EMBEDDINGS if name in self.tensors]
        if not found:
            raise CheckpointError(f"{self.path}: there is no tensor {EMBEDDINGS[0]}")
        return found[0]

    def identity(self, verify_weights: bool = False) -> str:
        """SHA-256 hex of config.json, of every tensor's name, dtype and shape, and of samples (wire.md 4).

        With `verify_weights` all bytes instead of samples. Raises CheckpointError for a partial copy without them.
        """
        value: dict[str, object] = {
            "config": {key: value for key, value in self.config.items() if key not in _PASSING},
            "tensors": sorted(
                [entry.name, entry.dtype.label, list(entry.shape)] + ([self._digest(entry)] if verify_weights else [])
                for entry in self.tensors.values()
            ),
        }
        if not verify_weights:
            samples = choose_samples((entry.name, entry.nbytes) for entry in self.tensors.values())
            value["samples"] = sample_digests(samples, self._sample_bytes)
        return digest_of(value)

    def entry(self, name: str) -> TensorEntry:
        """Where a tensor lies. Raises CheckpointError, with its name, where there is none."""
        entry = self.tensors.get(name)
        if entry is None:
            raise CheckpointError(f"{self.path}: there is no tensor {name}")
        return entry

    def tensor_bytes(self, name: str) -> memoryview:
        """A tensor's bytes, mapped and not copied. Raises CheckpointError, with its name, where there is none."""
        entry = self.entry(name)
        self.touched_bytes += entry.nbytes
        return self._file_of[name].tensor_bytes(name)

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive whole number of the text part's configuration. Raises CheckpointError, with the key."""
        value = self.text_config.get(key)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise CheckpointError(f"{self.path / CONFIG}: {key} is {value!r}, expected a number of at least 1")
        return value

    def _text(self, key: str) -> str:
        value = self.text_config.get(key)
        if not isinstance(value, str):
            raise CheckpointError(f"{self.path / CONFIG}: {key} is {value!r}, expected a name")
        return value

    def _row_dtype(self, label: str, where: str) -> RowDtype:
        found = _ROW_DTYPES.get(label.removeprefix("torch."))
        if found is None:
            raise CheckpointError(f"{self.path}: {where} is {label}; float32, float16 and bfloat16 can be run")
        return found

    def _sample_bytes(self, sample: Sample) -> memoryview:
        return self._file_of[sample.name].sample_bytes(sample)

    def _digest(self, entry: TensorEntry) -> str:
        digest = hashlib.sha256()
        data = self._file_of[entry.name].tensor_bytes(entry.name)
        for at in range(0, len(data), _CHUNK_BYTES):
            digest.update(data[at : at + _CHUNK_BYTES])
        return digest.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in a file. Raises CheckpointError."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: is not a JSON object")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """The same, or an empty object where there is no such file."""
    return read_json(path) if path.is_file() else {}


def _open_files(path: Path) -> list[SafetensorsFile]:
    """Every file that the index names, or all that there are without one."""
    index = path / INDEX
    if index.is_file():
        named = read_json(index).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
            raise CheckpointError(f"{index}: weight_map is not an object of file names")
        names = sorted(set(named.values()))
        if outside := [name for name in names if Path(name).name != name]:
            raise CheckpointError(f"{index}: {outside[0]!r} is not the name of a file beside it")
        files = [SafetensorsFile.open(path / name) for name in names]
        there = {tensor for file in files for tensor in file.tensors}
        if lacking := sorted(set(named) - there):
            raise CheckpointError(f"{index}: tensor {lacking[0]} is in none of the files")
        return files
    files = [SafetensorsFile.open(file) for file in sorted(path.glob("*.safetensors"))]
    if not files:
        raise CheckpointError(f"{path}: there is no safetensors file in this directory")
    return files
