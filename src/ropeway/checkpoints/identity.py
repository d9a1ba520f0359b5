"""What a GGUF checkpoint is: the digest that the layout's fingerprint carries, and the key of the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from ropeway.checkpoints.gguf_file import GgufFile, TensorInfo
from ropeway.checkpoints.origin import origin_of
from ropeway.checkpoints.samples import sample_digests

_CHUNK_BYTES = 16 << 20
_SAMPLE_BYTES = 64
_SAMPLES = 8


def checkpoint_identity(gguf: GgufFile, verify_weights: bool = False) -> str:
    """SHA-256 hex of the checkpoint's identity (wire.md 4).

    That is the UTF-8 JSON, sorted keys and no spaces, of `metadata`: sorted [key, SHA-256 hex of the encoded value],
    all keys but those of `general.` (`general.architecture` stays), `tensors`: sorted [name, type, shape], and
    `samples`: sorted [name, SHA-256 hex of its sample]. With `verify_weights` there are no samples, but each tensor's
    SHA-256 hex follows its shape, which reads the whole file. Raises CheckpointError for a partial copy without them.
    """
    value = _header(gguf)
    if verify_weights:
        value["tensors"] = sorted([*_described(info), _digest(gguf, info)] for info in gguf.tensors.values())
    else:
        value["samples"] = sample_digests(gguf.samples(), gguf.sample_bytes)
    return digest_of(value)


def digest_of(value: object) -> str:
    """SHA-256 hex of a JSON value in its canonical form: UTF-8, sorted keys, no spaces."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def content_key(gguf: GgufFile, tensors: Iterable[TensorInfo]) -> str:
    """SHA-256 hex that tells apart files whose `tensors` differ, without reading them whole.

    Takes in the header, a few samples of each tensor, and the file's size and time of change for a file that was
    damaged, then fetched again. For a copy that was fetched, in part or whole, its origin says which content it is.
    """
    header = digest_of(_header(gguf))
    if origin := origin_of(gguf.path):
        return hashlib.sha256(f"{header} fetched {origin.key}".encode()).hexdigest()
    stat = gguf.path.stat()
    digest = hashlib.sha256(f"{header} {stat.st_size} {stat.st_mtime_ns}".encode())
    for info in tensors:
        data = gguf.tensor_bytes(info.name)
        step = max(_SAMPLE_BYTES, len(data) // _SAMPLES)
        for at in range(0, len(data), step):
            digest.update(data[at : at + _SAMPLE_BYTES])
    return digest.hexdigest()


def _header(gguf: GgufFile) -> dict[str, object]:
    """What the identity takes of the header."""
    kept = {key: field for key, field in gguf.metadata.fields.items() if _identifies(key)}
    return {
        "metadata": sorted([key, hashlib.sha256(field.raw).hexdigest()] for key, field in kept.items()),
        "tensors": sorted(_described(info) for info in gguf.tensors.values()),
    }


def _described(info: TensorInfo) -> list[object]:
    return [info.name, info.type.name, list(info.shape)]


def _identifies(key: str) -> bool:
    return key == "general.architecture" or not key.startswith(("general.", "quantize.", "split."))


def _digest(gguf: GgufFile, info: TensorInfo) -> str:
    digest = hashlib.sha256()
    data = gguf.tensor_bytes(info.name)
    for at in range(0, len(data), _CHUNK_BYTES):
        digest.update(data[at : at + _CHUNK_BYTES])
    return digest.hexdigest()
