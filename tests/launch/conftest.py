"""One tiny model for all replicas: for its tokenizer, its template and its sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny_gguf import write_tiny


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its file."""
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf")
