"""One rank's engine and slots: what a plan asks is done, in order, and saves are acknowledged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fake_engine import FakeEngine, Shape, embedded, logits_of, values_of
from ropeway.engines.base import EngineError
from ropeway.stage.stage import Stage
from ropeway.wire import CacheAck, CacheAction, CacheOp, ErrorCode, Op, Plan, ProtocolError, Returns, StreamEntry

SHAPE = Shape(layers=3, chunk=8, parallel=2, context=32, max_rows=32)
KEY, OTHER = bytes(range(16)), bytes(16)


def whole() -> tuple[Stage, FakeEngine]:
    engine = FakeEngine(SHAPE, 0, 3, embed=True, head=True)
    return Stage(engine), engine


def prompt(stream: int, rows: int, cuts: tuple[int, ...] = (), *ops: CacheOp) -> Plan:
    return Plan((StreamEntry(stream, Op.OPEN, rows=rows),), cuts, cache=ops)


def run(stage: Stage, plan: Plan, tokens: tuple[int, ...] = ()) -> tuple[list[list[float]], tuple[CacheAck, ...]]:
    """The logits that a plan brings on a stage with all layers, and its acknowledgements."""
    work = stage.begin(plan)
    logits: list[list[float]] = []
    for part in work.parts:
        rows = memoryview(bytearray(part.rows * stage.row_bytes))
        stage.embed(tokens[part.start : part.start + part.rows], rows)
        logits += stage.forward_head(part, rows).tolist()
    return logits, stage.finish(work)


def save(key: bytes, stream: int) -> CacheOp:
    return CacheOp(CacheAction.SAVE, stream, key)


def resume(stream: int, at: int, rows: int, key: bytes) -> Plan:
    entry = StreamEntry(stream, Op.RESUME, at, rows, 0, at)
    return Plan((entry,), cache=(CacheOp(CacheAction.RESTORE, stream, key),))


def close(stream: int, generation: int, *ops: CacheOp) -> Plan:
    return Plan((StreamEntry(stream, Op.CLOSE, generation=generation),), cache=ops)


def test_rows_keeps_and_releases() -> None:
    stage, engine = whole()
    logits, acks = run(stage, prompt(0, 12, (8,)), tuple(range(12)))
    assert (logits, acks) == (logits_of(values_of(range(12), 3)[-1:]).tolist(), ())
    assert stage.held_rows == engine.held == 12
    draft = Plan((StreamEntry(0, Op.CONTINUE, 12, 4, 12),), returns=Returns.ALL)
    logits, _ = run(stage, draft, (5, 6, 7, 8))
    assert logits == logits_of(values_of([*range(12), 5, 6, 7, 8], 3)[-4:]).tolist()
    back = Plan((StreamEntry(0, Op.CONTINUE, 14, 1, 2),))
    logits, _ = run(stage, back, (9,))
    assert logits == logits_of(values_of([*range(12), 5, 6, 9], 3)[-1:]).tolist()
    assert stage.held_rows == engine.held == 15
    run(stage, close(0, 1))
    assert stage.held_rows == engine.held == 0


def test_the_parts_of_a_split_stage() -> None:
    first = Stage(FakeEngine(SHAPE, 0, 1, embed=True, head=True))
    last = Stage(FakeEngine(SHAPE, 1, 3, embed=False, head=False))
    plan = prompt(0, 3)
    rows, between = (memoryview(bytearray(3 * first.row_bytes)) for _ in range(2))
    (part,) = first.begin(plan).parts
    first.embed((1, 2, 3), rows)
    first.forward(part, rows, between)
    assert first.forward_ns > 0
    last.begin(plan)
    back = memoryview(bytearray(last.row_bytes))
    last.forward(part, between, back, part.returns)
    assert first.head(part, back).tolist() == logits_of(values_of((1, 2, 3), 3)[-1:]).tolist()
    first.begin(Plan((StreamEntry(0, Op.CLOSE),)))
    assert first.forward_ns == 0, "of the round alone"


def test_a_state_is_kept_restored_and_dropped() -> None:
    stage, engine = whole()
    _, acks = run(stage, prompt(0, 6, (), save(KEY, 0)), tuple(range(6)))
    assert acks == (CacheAck(KEY, True),)
    _, acks = run(stage, close(0, 0, save(OTHER, 0)))
    assert acks == (CacheAck(OTHER, True),), "before its slot is released"
    assert engine.held == 0
    assert stage.kept_bytes == 2 * 6 * 3 * 8
    logits, acks = run(stage, resume(1, 4, 2, KEY), (8, 9))
    assert (logits, acks) == (logits_of(values_of((0, 1, 2, 3, 8, 9), 3)[-1:]).tolist(), ())
    logits, _ = run(stage, resume(2, 6, 1, OTHER), (7,))
    assert logits == logits_of(values_of((0, 1, 2, 3, 4, 5, 7), 3)[-1:]).tolist()
    run(stage, Plan(cache=(CacheOp(CacheAction.DROP, 0, KEY),)))
    assert stage.kept_bytes == 6 * 3 * 8
    run(stage, close(2, 1))
    with pytest.raises(ProtocolError) as caught:
        run(stage, resume(3, 4, 2, KEY))
    assert caught.value.code is ErrorCode.UNKNOWN_KEY


def fail_with(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [EngineError("full"), MemoryError()])
def test_a_state_that_could_not_be_kept_is_said_so(error: Exception) -> None:
    stage, engine = whole()
    engine.before_save = fail_with(error)
    _, acks = run(stage, prompt(0, 6, (), save(KEY, 0)), tuple(range(6)))
    assert acks == (CacheAck(KEY, False),)
    assert stage.kept_bytes == 0
    with pytest.raises(EngineError, match="could not be kept, yet a plan restores it"):
        stage.begin(resume(1, 4, 2, KEY))


def test_a_state_that_was_not_kept_can_be_dropped() -> None:
    stage, engine = whole()
    engine.before_save = fail_with(EngineError("full"))
    run(stage, prompt(0, 6, (), save(KEY, 0)), tuple(range(6)))
    run(stage, Plan(cache=(CacheOp(CacheAction.DROP, 0, KEY),)))
    engine.before_save = lambda: None
    _, acks = run(stage, close(0, 0, save(KEY, 0)))
    assert acks == (CacheAck(KEY, True),)


def test_a_plan_that_is_refused_changes_nothing() -> None:
    stage, engine = whole()
    run(stage, prompt(0, 6), tuple(range(6)))
    bad = Plan((StreamEntry(0, Op.CONTINUE, 3, 1, 3), StreamEntry(1, Op.CONTINUE, 0, 1, 0)))
    with pytest.raises(ProtocolError):
        stage.begin(bad)
    assert stage.held_rows == engine.held == 6


def test_a_row_before_the_first_layer_is_its_tokens() -> None:
    stage, _ = whole()
    rows = memoryview(bytearray(2 * stage.row_bytes))
    stage.embed((4, 5), rows)
    assert [int.from_bytes(rows[at : at + 8], "little") for at in (0, stage.row_bytes)] == [embedded(4), embedded(5)]
