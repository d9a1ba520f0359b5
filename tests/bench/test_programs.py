"""Benches that borrow from the tests start at all: their names are not those of the tests' folders."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
NEEDS = {"mixed": (), "faults": (), "converted": ("torch", "transformers"), "recurrent": ("torch", "transformers")}


@pytest.mark.parametrize("name", NEEDS)
def test_it_starts(name: str) -> None:
    for module in NEEDS[name]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"bench/{name}.py needs {module}")
    argv = [sys.executable, str(BENCH / f"{name}.py"), "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
