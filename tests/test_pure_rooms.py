"""The pure rooms need nothing but the standard library, and read no clock, no randomness and no socket."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "ropeway"

IMPURE = {"asyncio", "multiprocessing", "os", "random", "secrets", "select", "selectors", "socket", "ssl", "subprocess"}
IMPURE |= {"threading", "time", "datetime", "uuid"}
COMMANDS = {PACKAGE / "wire" / "__main__.py"}
"""Entry points inside a pure room: they read files."""
MEASURING = {PACKAGE / "placement" / f"{name}.py" for name in ("calibration", "calibrated", "machine", "probe")}

COUNTING = {PACKAGE / "placement" / f"{name}.py" for name in ("arrays", "passes")}
"""The search's sums over all orders and cuts: NumPy beside the standard library."""

SINGLE = [PACKAGE / "types.py", PACKAGE / "stage" / "slots.py"]
SINGLE += [PACKAGE / "stage" / "work.py"]
SINGLE += [PACKAGE / "serving" / f"{name}.py" for name in ("scheduler", "slots", "sequence", "rounds", "prompts")]
SINGLE += [PACKAGE / "serving" / "prompt_cache.py"]
DRAFTING = ("acceptance", "automaton", "cost", "drafter", "ngram", "window")
SINGLE += [PACKAGE / "serving" / "drafting" / f"{name}.py" for name in DRAFTING]
SINGLE += [PACKAGE / "cluster" / "names.py"]
SWIM = PACKAGE / "cluster" / "swim" / "__init__.py"
ROOMS = ("wire", "placement", "cluster/swim")
FETCH = ("exchange", "need", "ranges", "source", "spec")
SINGLE += [PACKAGE / "checkpoints" / "fetch" / f"{name}.py" for name in FETCH]
FILES = sorted(
    path
    for path in [*SINGLE, *(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py"))]
    if path.exists() and path not in MEASURING
)

BARE = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
__import__(sys.argv[2])
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(roots - set(sys.stdlib_module_names) - {"ropeway"}))
"""


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_there_are_pure_rooms() -> None:
    assert PACKAGE / "wire" / "link.py" in FILES
    assert PACKAGE / "types.py" in FILES


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_pure_module_imports_nothing_impure(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module or "")
    roots = {name.partition(".")[0] for name in imported}
    assert roots <= set(sys.stdlib_module_names) | {"ropeway"} | ({"numpy"} if path in COUNTING else set())
    assert path in COMMANDS or not roots & IMPURE


def test_a_bare_interpreter_imports_the_pure_rooms() -> None:
    placement = [PACKAGE / "placement" / f"{name}.py" for name in ("cost", "fit", "inventory", "ranges", "tables")]
    wire = [PACKAGE / "wire" / "__init__.py", PACKAGE / "wire" / "__main__.py"]
    for path in [*wire, *placement, SWIM, *SINGLE]:
        if path.exists():
            assert bare_import(module_name(path)) == "", path


def bare_import(name: str) -> str:
    """The roots of third-party modules that an import brings in, without site-packages in sight."""
    command = [sys.executable, "-I", "-S", "-c", BARE, str(SOURCE), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
