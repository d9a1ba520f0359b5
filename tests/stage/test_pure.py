"""The slot table and the scheduler import the standard library alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, sys
importlib.import_module(sys.argv[1])
strange = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - BEFORE - {"ropeway"}
assert not strange, strange
"""


@pytest.mark.parametrize("module", ["ropeway.stage.slots", "ropeway.serving.slots", "ropeway.serving.scheduler"])
def test_nothing_but_the_standard_library(module: str) -> None:
    program = 'import sys; BEFORE = {name.partition(".")[0] for name in sys.modules}' + PROGRAM
    subprocess.run([sys.executable, "-c", program, module], check=True, timeout=60)
