"""How long rank 0 waits for what a stage says of itself: a worker says it only once it has loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fake_engine import FakeEngine, Shape
from ropeway.launch.placement import Options, place
from ropeway.launch.rank0 import meet
from ropeway.transport.ring import LOAD_S
from tiny_gguf import TinyModel, write_tiny


class WaitedForError(Exception):
    """So long would have been waited."""


class FakeRing:
    """Says how long its caller would wait."""

    def descriptions(self, limit_s: float | None = None) -> list[Any]:
        raise WaitedForError(limit_s)


@pytest.mark.parametrize(
    ("engines", "limit_s"), [(("llamacpp", "worker"), LOAD_S), (("llamacpp", "llamacpp"), None)], ids=str
)
def test_a_worker_may_take_as_long_as_any_stage_to_load(
    tmp_path: Path, engines: tuple[str, ...], limit_s: float | None
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=2))
    placement = place(Options(str(path), engines=engines, worker_cmd="true"))
    shape = Shape()
    engine = FakeEngine(shape, 0, shape.layers, embed=True, head=True)
    ring: Any = FakeRing()
    with pytest.raises(WaitedForError) as waited:
        meet(engine, placement, ring, ("", ""))
    assert waited.value.args == (limit_s,)
