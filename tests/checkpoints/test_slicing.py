"""Slices on disk: the same bytes each time, reused, one a content; several processes at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.slice_plan import SliceKind
from ropeway.checkpoints.slicing import cached_slices, slice_stage
from tiny_gguf import TinyModel, write_tiny

LAYERS = 5


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=LAYERS))


def test_a_slice_holds_the_checkpoints_bytes(tmp_path: Path, tiny: Path) -> None:
    whole = GgufFile.open(tiny)
    stage = GgufFile.open(slice_stage(tiny, 2, 4, False, tmp_path))
    for name in (name for name in whole.tensors if name.startswith("blk.0.")):
        rest = name.removeprefix("blk.0.")
        assert stage.tensor_bytes(f"blk.0.{rest}") == whole.tensor_bytes(f"blk.2.{rest}")
        assert stage.tensor_bytes(f"blk.1.{rest}") == whole.tensor_bytes(f"blk.3.{rest}")
    assert not any(stage.tensor_bytes("blk.2.attn_q.weight"))
    assert stage.tensor_bytes("blk.2.attn_norm.weight").cast("f").tolist() == [1.0] * 64
    head = GgufFile.open(slice_stage(tiny, LAYERS, LAYERS, True, tmp_path))
    assert head.tensor_bytes("token_embd.weight") == whole.tensor_bytes("output.weight")
    assert head.tensor_bytes("output_norm.weight") == whole.tensor_bytes("output_norm.weight")


def test_the_same_slice_is_the_same_bytes_and_is_reused(tmp_path: Path, tiny: Path) -> None:
    first = slice_stage(tiny, 1, 3, False, tmp_path / "a")
    second = slice_stage(tiny, 1, 3, False, tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    before = first.stat()
    assert slice_stage(str(tiny), 1, 3, False, tmp_path / "a") == first
    assert first.stat().st_mtime_ns == before.st_mtime_ns


def test_another_content_under_the_same_path_is_another_slice(tmp_path: Path, tiny: Path) -> None:
    first = slice_stage(tiny, 1, 3, False, tmp_path)
    write_tiny(tiny, TinyModel(layers=LAYERS, seed=1))
    assert slice_stage(tiny, 1, 3, False, tmp_path) != first


def test_a_damaged_slice_is_written_again(tmp_path: Path, tiny: Path) -> None:
    path = slice_stage(tiny, 0, 2, False, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert slice_stage(tiny, 0, 2, False, tmp_path).read_bytes() == whole


def test_cached_slices_are_listed_with_their_room(tmp_path: Path, tiny: Path) -> None:
    assert cached_slices(tmp_path) == []
    paths = [
        slice_stage(tiny, *arguments, tmp_path)
        for arguments in ((0, 2, False), (2, 5, False), (2, 5, True), (5, 5, True))
    ]
    (paths[0].parent / "note.gguf").write_bytes(b"not ours")
    (paths[0].parent / (paths[0].name + ".part")).write_bytes(b"left behind")
    listed = {slice_.path: slice_ for slice_ in cached_slices(tmp_path)}
    assert set(listed) == set(paths)
    assert [(listed[path].kind, listed[path].first, listed[path].end) for path in paths] == [
        (SliceKind.STAGE, 0, 2),
        (SliceKind.LAST, 2, 5),
        (SliceKind.TAIL, 2, 5),
        (SliceKind.HEAD, 5, 5),
    ]
    assert all(slice_.disk_bytes > 0 for slice_ in listed.values())


def test_the_cache_is_where_the_environment_says(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "named"))
    assert slice_stage(tiny, 0, 2, False).parent == tmp_path / "named" / "slices"
    assert len(cached_slices()) == 1


def test_a_checkpoint_cut_short_leaves_nothing_behind(tmp_path: Path, tiny: Path) -> None:
    whole = tiny.read_bytes()
    tiny.write_bytes(whole[:-1000])
    with pytest.raises(CheckpointError, match=r"tiny\.gguf: .* it is cut short"):
        slice_stage(tiny, 0, 2, False, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_two_processes_slice_at_once(tmp_path: Path, tiny: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ropeway.checkpoints.slicing import slice_stage\n"
        "sys.stdin.read(1)\n"
        "print(slice_stage(sys.argv[1], 1, 4, False, Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(tiny), str(tmp_path)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = []
    for process in both:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    for process in both:
        outputs.append(process.communicate(timeout=60)[0].strip())
        assert process.returncode == 0
    assert outputs[0] == outputs[1]
    assert [path.name for path in (tmp_path / "slices").iterdir()] == [Path(outputs[0]).name]
    GgufFile.open(outputs[0])
