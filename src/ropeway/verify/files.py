"""Every byte of a model on disk: what a certificate calls the model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

_READ: Final = (".json", ".safetensors", ".jinja", ".txt", ".model")
"""Endings of a directory's files that hold the model, its tokenizer and its chat template."""


def files_digest(path: Path) -> str:
    """SHA-256 hex of a file, or of the names and digests of a directory's files."""
    if not path.is_dir():
        return _digest(path)
    found = sorted(file for file in path.iterdir() if file.suffix in _READ and file.is_file())
    return hashlib.sha256("".join(f"{_digest(file)} {file.name}\n" for file in found).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
