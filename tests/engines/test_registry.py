"""Engines by name: what is chosen where nothing is named, and what is refused by name before a ring is begun."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ropeway.engines.base import EngineConfig, EngineError
from ropeway.engines.llamacpp.engine import LlamaCppEngine
from ropeway.engines.registry import DEFAULT, ENGINES, engine_entry, make_engine
from ropeway.launch.child import dump_setup, load_setup
from ropeway.launch.placement import Options, place
from ropeway.launch.rank import RankSetup
from ropeway.transport import tcp
from ropeway.types import Boundary, EngineKind, RowDtype
from tiny_gguf import write_tiny
from tiny_safetensors import LLAMA, llama_tensors, write_directory


@pytest.fixture
def gguf(tmp_path: Path) -> str:
    return str(write_tiny(tmp_path / "tiny.gguf"))


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(write_directory(tmp_path / "tiny", {**LLAMA, "dtype": "bfloat16"}, llama_tensors()))


def test_names_are_those_of_the_wire() -> None:
    assert set(ENGINES) == {kind.name.lower() for kind in EngineKind}
    for name, entry in ENGINES.items():
        assert entry.kind.name.lower() == name
        assert bool(entry.modules) == bool(entry.extra)


def test_nothing_heavy_is_imported_with_the_registry() -> None:
    code = "import sys, ropeway.engines.registry; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "mlx", "tinygrad", "xllamacpp", "tokenizers"} & set(found)


def test_what_suits_the_checkpoint_unless_one_is_named(gguf: str, directory: str) -> None:
    assert place(Options(gguf, 2)).engines == ("llamacpp", "llamacpp")
    assert place(Options(directory, 3)).engines == ("torch", "torch", "torch")
    assert place(Options(gguf, 2, engines=("torch",))).engines == ("torch", "torch")
    assert place(Options(gguf, 2, engines=("llamacpp", "torch"))).engines == ("llamacpp", "torch")
    assert all(format in engine_entry(name).formats for format, name in DEFAULT.items())


def test_the_boundary_is_the_checkpoint_s(gguf: str, directory: str) -> None:
    placed = place(Options(directory, 2))
    assert placed.layout.boundary == Boundary(8, 1, RowDtype.BF16)
    assert placed.engine_config(1).boundary == placed.layout.boundary
    assert place(Options(directory, 2, dtype="f32")).layout.boundary.row_dtype is RowDtype.F32
    assert place(Options(gguf, 2, dtype="bf16", engines=("torch",))).layout.boundary.row_dtype is RowDtype.F32


@pytest.mark.parametrize(
    ("model", "flags", "why"),
    [
        ("gguf", {"engines": ("abacus",)}, "engine: 'abacus' is none of llamacpp, torch"),
        ("gguf", {"engines": ("llamacpp",) * 3}, "names 3 engines for 2 stages"),
        ("directory", {"engines": ("llamacpp",)}, r"rank 0's engine llamacpp reads GGUF, .*tiny is safetensors"),
        ("directory", {"engines": ("torch", "tinygrad")}, "rank 1's engine tinygrad reads GGUF"),
        ("gguf", {"dtype": "int8"}, "dtype: 'int8' is none of f32, f16, bf16"),
        ("directory", {"dtype": "int8"}, "dtype: 'int8' is none of f32, f16, bf16"),
    ],
)
def test_refused(request: pytest.FixtureRequest, model: str, flags: dict[str, str], why: str) -> None:
    path: str = request.getfixturevalue(model)
    with pytest.raises(ValueError, match=why):
        place(Options(path, 2, **flags))  # type: ignore[arg-type]


def test_an_engine_that_cannot_speak_the_boundary(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "torch", replace(ENGINES["torch"], rows=frozenset({RowDtype.F32})))
    with pytest.raises(ValueError, match="rank 0's engine torch sends f32 rows, this boundary is bf16"):
        place(Options(directory, 2))


def test_a_library_that_is_missing_is_named_with_its_extra(gguf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "torch", replace(ENGINES["torch"], modules=("not_there",)))
    with pytest.raises(
        EngineError, match=re.escape("needs not_there, which is not installed: pip install 'ropeway[torch]'")
    ):
        place(Options(gguf, 2, engines=("torch",))).make_engine(0)


def test_an_engine_is_made_by_its_name(gguf: str) -> None:
    assert isinstance(make_engine("llamacpp", EngineConfig(gguf, 0, 5, True, True)), LlamaCppEngine)


def test_a_child_learns_of_the_engines(gguf: str) -> None:
    options = Options(gguf, 2, engines=("llamacpp", "torch"), dtype="bf16", device="cpu", invariant=True)
    with tcp.listen("127.0.0.1:0") as listener:
        setup = RankSetup(1, ("127.0.0.1:1", "127.0.0.1:2"), b"k" * 32, listener=listener)
        read, found = load_setup(dump_setup(options, setup))
        assert asdict(read) == asdict(options)
        assert found.listener is not None
        found.listener.detach()
