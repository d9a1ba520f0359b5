"""The fake engine itself: a check that can fail."""

from __future__ import annotations

import pytest

from fake_engine import FakeEngine, Shape
from ropeway.engines.base import EngineError, Span


def test_the_fake_engine_notices_what_a_loop_could_do_wrong() -> None:
    """Stale rows, a row of another position and bytes that were overwritten."""
    shape = Shape(layers=2)
    first = FakeEngine(shape, 0, 1, embed=True, head=True)
    last = FakeEngine(shape, 1, 2, embed=False, head=False)
    rows, between, back = (memoryview(bytearray(3 * first.boundary.row_bytes())) for _ in range(3))
    first.embed([1, 2, 3], rows)
    first.forward([Span(0, 0, 3)], rows, between)
    last.forward([Span(0, 0, 3)], between, back)
    with pytest.raises(EngineError, match="holds 3 positions"):
        last.forward([Span(0, 0, 3)], between, back)
    last.release(0)
    with pytest.raises(EngineError, match="position 0 got a row of 1, 1"):
        last.forward([Span(0, 0, 1), Span(1, 0, 2)], between, back)
    last.slots.clear()
    with pytest.raises(EngineError, match="got a row of 0"):
        last.forward([Span(0, 0, 3)], rows, back)
    between[8] ^= 1
    with pytest.raises(EngineError, match="not what was written"):
        last.forward([Span(0, 0, 3)], between, back)
