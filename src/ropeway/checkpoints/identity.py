"""What a checkpoint is: the digest that the layout's fingerprint carries, and the key of the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from ropeway.checkpoints.gguf_file import GgufFile, TensorInfo
from ropeway.checkpoints.origin import origin_of

_CHUNK_BYTES = 16 << 20
_SAMPLE_BYTES = 64
_SAMPLES = 8


def checkpoint_identity(gguf: GgufFile, verify_weights: bool = False) -> str:
    """SHA-256 hex of the checkpoint's identity (wire.md 4).

    That is the UTF-8 JSON, sorted keys and no spaces, of `metadata`: sorted [key, SHA-256 hex of the encoded value],
    all keys but those of `general.` (`general.architecture` stays), and `tensors`: sorted [name, type, shape]. With
    `verify_weights` each tensor's SHA-256 hex follows its shape, which reads the whole file.
    """
    kept = {key: field for key, field in gguf.metadata.fields.items() if _identifies(key)}
    value = {
        "metadata": sorted([key, hashlib.sha256(field.raw).hexdigest()] for key, field in kept.items()),
        "tensors": sorted(
            [info.name, info.type.name, list(info.shape)] + ([_digest(gguf, info)] if verify_weights else [])
            for info in gguf.tensors.values()
        ),
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def content_key(gguf: GgufFile, tensors: Iterable[TensorInfo]) -> str:
    """SHA-256 hex that tells apart files whose `tensors` differ, without reading them whole.

    Two fine-tunes of one model have the same identity, so this takes in a few samples of each tensor's bytes as well,
    and the file's size and time of change for a file that was damaged, then fetched again. For a copy that was fetched,
    in part or whole, its origin says which content it is.
    """
    if origin := origin_of(gguf.path):
        return hashlib.sha256(f"{checkpoint_identity(gguf)} fetched {origin.key}".encode()).hexdigest()
    stat = gguf.path.stat()
    digest = hashlib.sha256(f"{checkpoint_identity(gguf)} {stat.st_size} {stat.st_mtime_ns}".encode())
    for info in tensors:
        data = gguf.tensor_bytes(info.name)
        step = max(_SAMPLE_BYTES, len(data) // _SAMPLES)
        for at in range(0, len(data), step):
            digest.update(data[at : at + _SAMPLE_BYTES])
    return digest.hexdigest()


def _identifies(key: str) -> bool:
    return key == "general.architecture" or not key.startswith(("general.", "quantize.", "split."))


def _digest(gguf: GgufFile, info: TensorInfo) -> str:
    digest = hashlib.sha256()
    data = gguf.tensor_bytes(info.name)
    for at in range(0, len(data), _CHUNK_BYTES):
        digest.update(data[at : at + _CHUNK_BYTES])
    return digest.hexdigest()
