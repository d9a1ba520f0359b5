"""The eval callback that reads one tensor: against a graph made up here, and against llama.cpp's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from engines.split import tiny_config
from ropeway.engines.base import EngineError, Span
from ropeway.engines.llamacpp.binding import LlamaCpp
from ropeway.engines.llamacpp.engine import LlamaCppEngine
from ropeway.engines.llamacpp.tap import OutputTap
from tiny_gguf import TinyModel, write_tiny

NAME = "l_out-2"
SHAPE = (4, 8)


@dataclass
class Tensor:
    name: bytes
    data: bytes = b""


class Library:
    """What the tap calls, and how often it asked for a name."""

    def __init__(self) -> None:
        self.asked = 0

    def ggml_get_name(self, tensor: Tensor) -> bytes:
        self.asked += 1
        return tensor.name

    def ggml_backend_tensor_get(self, tensor: Tensor, out: memoryview, offset: int, size: int) -> None:
        out[:size] = tensor.data[offset : offset + size]


class Ffi:
    def callback(self, _: str, call: Any, *, error: bool) -> Any:
        return call

    def string(self, name: bytes) -> bytes:
        return name

    def from_buffer(self, out: memoryview) -> memoryview:
        return out


class Fake:
    """A tap over a made-up library; `run` does what the scheduler does with a graph."""

    def __init__(self) -> None:
        self.lib = Library()
        self.tap = OutputTap(cast("LlamaCpp", self), NAME)

    ffi = Ffi()

    def run(self, graph: list[Tensor], size: int = 8, shape: tuple[int, int] = SHAPE) -> bytes:
        out = bytearray(size)
        self.tap.arm(shape, memoryview(out))
        for tensor in graph:
            if self.tap.callback(tensor, True, None):
                assert self.tap.callback(tensor, False, None)
        self.tap.disarm()
        return bytes(out)


def graph(data: bytes = b"12345678", before: int = 5, behind: int = 3) -> list[Tensor]:
    return [
        *(Tensor(b"ffn_inp-%d" % at) for at in range(before)),
        Tensor(NAME.encode(), data),
        *(Tensor(b"norm-%d" % at) for at in range(behind)),
    ]


def test_the_place_is_learned_once_a_shape() -> None:
    fake = Fake()
    assert fake.run(graph(b"abcdefgh")) == b"abcdefgh"
    assert fake.lib.asked == 5 + 1 + 1, "up to the tensor, and once more when it is there"
    fake.lib.asked = 0
    assert fake.run(graph(b"ABCDEFGH")) == b"ABCDEFGH"
    assert fake.lib.asked == 1
    assert fake.run(graph(b"12345678", before=7), shape=(9, 8)) == b"12345678"
    assert fake.run(graph(b"ABCDEFGH")) == b"ABCDEFGH"


def test_no_more_is_read_than_there_is_room_for() -> None:
    fake = Fake()
    assert fake.run(graph(b"abcdefgh"), size=4) == b"abcd"
    assert fake.run(graph(b""), size=0, shape=(4, 0)) == b""


@pytest.mark.parametrize("changed", [graph(before=6), graph(before=4), graph()[:3]])
def test_a_graph_that_changed_is_an_error_and_is_learned_anew(changed: list[Tensor]) -> None:
    fake = Fake()
    fake.run(graph())
    with pytest.raises(EngineError, match="0 tensors 'l_out-2' where one was expected"):
        fake.run(changed)
    if len(changed) > 3:
        assert fake.run(changed) == b"12345678"
        assert fake.run(changed) == b"12345678"


def test_a_graph_without_the_tensor_is_an_error_every_time() -> None:
    fake = Fake()
    for _ in range(2):
        with pytest.raises(EngineError, match="0 tensors"):
            fake.run(graph()[:5])
    assert fake.run(graph()) == b"12345678"


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_real_graph_keeps_its_tensor_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    """Whatever the batch and its spans are, and whatever is wanted: the place is counted, so it has to stay."""
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel(architecture=architecture))
    config = replace(tiny_config(path, 5, parallel=4), first=2, head=False, embed=False)
    engine = LlamaCppEngine(config)
    engine.load()
    size = engine.boundary.row_bytes()
    at = [0] * 4

    def run(*rows: int, wanted: list[int] | None = None) -> None:
        spans = [Span(slot, at[slot], count) for slot, count in enumerate(rows) if count]
        total = sum(rows)
        out = bytearray((total if wanted is None else len(wanted)) * size)
        engine.forward(spans, memoryview(bytes(range(64)) * (total * size // 64)), memoryview(out), wanted)
        assert any(out) or not out
        for slot, count in enumerate(rows):
            at[slot] += count

    try:
        for _ in range(2):
            run(4)
            run(1, 1, 1, 1)
            run(2, 2)
            run(0, 4, wanted=[3])
            run(0, 4, wanted=[0, 1, 2, 3])
            run(4, wanted=[])
            run(1, 3, 1, wanted=[0, 4])
            run(32, wanted=[31])
            run(1, wanted=[0])
    finally:
        engine.close()
