"""The benches are programs, not a package, and one of them is called as a folder of tests is: those that are tested are
loaded by their files, each behind what it imports."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"

for name in ("harness", "results", "svg", "plots", "tables", "link", "replay", "suite"):
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
