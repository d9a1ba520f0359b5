"""Imports between rooms run one way, as docs/architecture.md draws them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "ropeway"

BELOW: dict[str, set[str]] = {
    "types": set(),
    "wire": {"types"},
    "checkpoints": {"types"},
    "transport": {"wire", "types"},
    "engines": {"checkpoints", "types"},
    "stage": {"engines", "transport", "wire", "types"},
    "placement": {"engines", "checkpoints", "transport", "types"},
    "cluster": {"placement", "checkpoints", "transport", "types"},
    "serving": {"stage", "placement", "engines", "checkpoints", "transport", "wire", "types"},
    "api": {"serving", "types"},
    "launch": {"serving", "cluster", "stage", "placement", "engines", "checkpoints", "transport", "wire", "types"},
    "verify": {"launch", "serving", "stage", "engines", "checkpoints", "types"},
    "smoke": {"launch", "cluster", "serving", "engines", "checkpoints", "transport", "wire", "types"},
}
"""What each room may import. `cli` may import all, and nothing imports it."""
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__")


def test_every_room_has_its_place() -> None:
    assert set(ROOMS) | {"types"} == set(BELOW) | {"cli"}


@pytest.mark.parametrize("room", sorted(BELOW))
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    found: dict[str, Path] = {}
    for path in [*(PACKAGE / room).rglob("*.py"), *PACKAGE.glob(f"{room}.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                root, _, rest = name.partition(".")
                if root == "ropeway" and rest:
                    found.setdefault(rest.partition(".")[0], path)
    wrong = {above: path for above, path in found.items() if above not in BELOW[room] | {room}}
    assert not wrong
