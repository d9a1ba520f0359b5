"""Recorded decode steps, on a CPU: a tape of torch's own calls stands for a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engines.torch.stages import config_of, prompt
from engines.torch.tiny_models import FAMILIES, LAYERS, write_model
from ropeway.engines.base import EngineError, Span
from ropeway.engines.torch.edge import Edge
from ropeway.engines.torch.engine import TorchEngine
from ropeway.engines.whole import EngineWhole
from ropeway.types import Boundary, RowDtype

FORBIDDEN = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::_unique2")
"""What a graph cannot hold: the host would have to wait for a value, or memory would depend on one."""


class Calls(TorchDispatchMode):  # type: ignore[misc]  # torch leaves it untyped
    """Every call of torch, with what it took and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, Sequence[Any], dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.name() not in FORBIDDEN, f"{func.name()} cannot be recorded"
        found = func(*args, **(kwargs or {}))
        self.made.append((func, args, kwargs or {}, tree_leaves(found)))
        return found


class Tape:
    """A `Recorder` that makes a piece's calls again, each into the memory of the first time."""

    def __init__(self) -> None:
        self.pieces = 0
        self.played = 0
        self._calls: Calls | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        yield
        assert self._calls is None

    def begin(self) -> None:
        assert self._calls is None
        self._calls = Calls()
        self._calls.__enter__()

    def end(self) -> Callable[[], None]:
        calls, self._calls = self._calls, None
        assert calls is not None
        calls.__exit__(None, None, None)
        self.pieces += 1

        def play() -> None:
            self.played += 1
            for func, args, kwargs, held in calls.made:
                for old, new in zip(held, tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

        return play


def logits_of(engine: TorchEngine) -> list[bytes]:
    """Three streams: alone and together, past multiples of 64, rolled back, left, and their slots used again."""
    whole, found = EngineWhole(engine), []

    def step(spans: Sequence[Span], seed: int) -> None:
        rows = sum(span.rows for span in spans)
        found.append(whole.forward(spans, prompt(seed, rows), range(rows)).tobytes())

    for slot, rows in enumerate((60, 7, 33)):
        step([Span(slot, 0, rows)], slot)
    for at in range(8):
        step([Span(0, 60 + at, 1)], 10 + at)
        step([Span(2, 33 + at, 1), Span(1, 7 + at, 1)], 30 + at)
    whole.keep(0, 63)
    whole.keep(2, 39)
    for at in range(4):
        step([Span(2, 39 + at, 1), Span(0, 63 + at, 1)], 50 + at)
    whole.release(1)
    step([Span(1, 0, 1)], 60)
    for at in range(3):
        step([Span(1, 1 + at, 1)], 61 + at)
        step([Span(0, 67 + at, 1), Span(1, 2 + at, 1), Span(2, 43 + at, 1)], 70 + at)
        whole.keep(1, 2 + at)
    step([Span(0, 70, 3), Span(2, 46, 1)], 80)
    whole.close()
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_played_steps_have_the_bits_of_plain_ones(tmp_path: Path, family: str) -> None:
    config, tape = config_of(write_model(tmp_path, family, torch.float32), LAYERS, parallel=3), Tape()
    expected = logits_of(TorchEngine(config))
    assert logits_of(TorchEngine(config, recorder=tape)) == expected
    assert tape.played > 5 * tape.pieces / 3 > 5  # three shapes were recorded, and each was played several times


def test_pieces_are_what_lies_between_attentions(tmp_path: Path) -> None:
    config, tape = config_of(write_model(tmp_path, "llama", torch.float32), LAYERS), Tape()
    whole = EngineWhole(TorchEngine(config, recorder=tape))
    whole.forward([Span(0, 0, 5)], prompt(1, 5), [4])
    assert not tape.pieces, "a part of a prompt is not recorded"
    whole.forward([Span(0, 5, 1)], [7], [0])
    assert (tape.pieces, tape.played) == (LAYERS + 1, 0)
    whole.forward([Span(0, 6, 1)], [7], [0])
    assert (tape.pieces, tape.played) == (LAYERS + 1, LAYERS + 1)


def test_invariant_mode_records_nothing(tmp_path: Path) -> None:
    config, tape = config_of(write_model(tmp_path, "llama", torch.bfloat16), LAYERS, invariant=True), Tape()
    whole = EngineWhole(TorchEngine(config, recorder=tape))
    for at in range(3):
        whole.forward([Span(0, at, 1)], [7], [0])
    assert not tape.pieces


class Refusing(Tape):
    """As CUDA does where a call makes the host wait."""

    def begin(self) -> None:
        if self.pieces:
            raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors might be ...")
        super().begin()


def test_a_device_that_does_not_record_a_step(tmp_path: Path) -> None:
    whole = EngineWhole(
        TorchEngine(config_of(write_model(tmp_path, "llama", torch.float32), LAYERS), recorder=Refusing())
    )
    whole.forward([Span(0, 0, 5)], prompt(1, 5), [4])
    with pytest.raises(
        EngineError, match=r"could not be recorded: operation not .* capturing; without ROPEWAY_GRAPHS=on none is"
    ):
        whole.forward([Span(0, 5, 1)], [7], [0])


class Host:
    """`Staging` that counts what is asked of it."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.waits = 0

    def make(self, size: int) -> torch.Tensor:
        self.made.append(size)
        return torch.full((size,), 255, dtype=torch.uint8)

    def wait(self) -> None:
        self.waits += 1


@pytest.mark.parametrize("kind", list(RowDtype))
def test_rows_by_way_of_pinned_memory(kind: RowDtype) -> None:
    boundary, host = Boundary(8, 3, kind), Host()
    plain = Edge(boundary, torch.float32, torch.device("cpu"))
    staged = Edge(boundary, torch.float32, torch.device("cpu"), host)
    for count in (2, 5, 1, 4, 0):
        values = torch.randn(count * 24).to(plain.read(memoryview(b""), 0).dtype)
        rows, out = bytearray(count * boundary.row_bytes()), bytearray(count * boundary.row_bytes())
        plain.write(values.view(1, count, 24), memoryview(rows))
        waited = host.waits
        staged.write(values.view(1, count, 24), memoryview(out))
        assert host.waits == waited + (count > 0), "the device is done before bytes leave"
        assert out == rows
        assert torch.equal(staged.read(memoryview(rows), count), plain.read(memoryview(rows), count))
    assert host.made == [2 * boundary.row_bytes()] * 2 + [5 * boundary.row_bytes()] * 2
