"""The note beside a partial copy: what it says comes back, and nothing else is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.origin import NOTE, HeldFile, Origin, held_of, origin_of, refuse_partial, require_held

KEY = "ab" * 32
ORIGIN = Origin(KEY, "hf:org/name", {"a.gguf": HeldFile(100, "etag:x", ((0, 10), (50, 100)))})


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / NOTE).write_bytes(ORIGIN.encode())
    (tmp_path / "a.gguf").write_bytes(bytes(100))
    return tmp_path / "a.gguf"


def test_a_note_comes_back(copy: Path) -> None:
    assert origin_of(copy) == ORIGIN
    assert origin_of(copy.parent) == ORIGIN
    assert held_of(copy) == ((0, 10), (50, 100))
    assert held_of(copy.with_name("another.gguf")) is None
    assert origin_of(copy.parent / "nowhere" / "b.gguf") is None


def test_holes_are_refused_by_name(copy: Path) -> None:
    held = held_of(copy)
    require_held(copy, held, 50, 100, "tensor x")
    require_held(copy, None, 0, 100, "tensor x")
    with pytest.raises(CheckpointError, match=r"a\.gguf: tensor x is not on this machine"):
        require_held(copy, held, 9, 11, "tensor x")
    with pytest.raises(CheckpointError, match="only a part of this checkpoint was fetched, and all of it is needed"):
        refuse_partial(copy)
    refuse_partial(copy.with_name("another.gguf"))
    whole = Origin(KEY, "x", {"a.gguf": HeldFile(100, "t", ((0, 100),))})
    (copy.parent / NOTE).write_bytes(whole.encode())
    refuse_partial(copy)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"key": "ab"},
        {"key": None},
        {"source": 5},
        {"files": []},
        {"files": {"a.gguf": 5}},
        {"files": {"a.gguf": {"bytes": "100", "tag": "t", "held": []}}},
        {"files": {"a.gguf": {"bytes": 100, "tag": "t", "held": [[0, 101]]}}},
        {"files": {"a.gguf": {"bytes": 100, "tag": "t", "held": [[5, 5]]}}},
        {"files": {"a.gguf": {"bytes": 100, "tag": "t", "held": [[-1, 5]]}}},
        {"files": {"a.gguf": {"bytes": 100, "tag": "t", "held": [[0, 5, 9]]}}},
        {"files": {"a.gguf": {"bytes": 100, "tag": "t", "held": [[0, True]]}}},
        {"files": {"a.gguf": {"tag": "t", "held": []}}},
    ],
)
def test_notes_that_are_not_believed(copy: Path, change: dict[str, Any]) -> None:
    value = json.loads(ORIGIN.encode()) | change
    (copy.parent / NOTE).write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match="is not what a fetch writes"):
        origin_of(copy)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"5", b"[" * 100_000])
def test_notes_that_are_none(copy: Path, raw: bytes) -> None:
    (copy.parent / NOTE).write_bytes(raw)
    with pytest.raises(CheckpointError, match="is not what a fetch writes"):
        origin_of(copy)
