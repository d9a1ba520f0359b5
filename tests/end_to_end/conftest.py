"""A yard for processes, and the tiny model that end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.processes import Yard
from tiny_gguf import TinyModel, write_tiny


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    here = Yard(tmp_path)
    try:
        yield here
    finally:
        here.end()


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("small") / "small.gguf", TinyModel(layers=6)))
