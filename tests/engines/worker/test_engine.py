"""A worker as an engine: the rows of the very engine that it has behind its pipe, whatever its dtype and abilities."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np
import pytest

from engines.worker.commands import LAYERS, STUB, VOCABULARY, bad, config
from ropeway.engines.base import Engine, EngineConfig, EngineError, Logits, Span
from ropeway.engines.worker.engine import WorkerEngine
from ropeway.engines.worker.stub import StubEngine
from ropeway.types import Backend, KvDtype, RowDtype

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def start(stack: ExitStack, of: EngineConfig) -> WorkerEngine:
    return stack.enter_context(closing(WorkerEngine(of)))


def embedded(engine: Engine, tokens: Sequence[int]) -> memoryview:
    rows = memoryview(bytearray(len(tokens) * engine.boundary.row_bytes()))
    engine.embed(tokens, rows)
    return rows


def forward(engine: Engine, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int] | None = None) -> memoryview:
    count = len(rows) // engine.boundary.row_bytes() if wanted is None else len(wanted)
    out = memoryview(bytearray(count * engine.boundary.row_bytes()))
    engine.forward(spans, rows, out, wanted)
    return out


def whole(*steps: tuple[Sequence[Span], Sequence[int], Sequence[int]]) -> list[Logits]:
    """What the stub gives in this process, a batch a step: spans, tokens, wanted."""
    engine = StubEngine(config(first=0, end=LAYERS, embed=True, head=True))
    return [engine.forward_head(spans, embedded(engine, tokens), wanted) for spans, tokens, wanted in steps]


BATCHES = [
    ([Span(0, 0, 5)], PROMPT[:5], [4]),
    ([Span(0, 5, 1), Span(1, 0, 3)], [7, 8, 9, 10], [0, 3]),
    ([Span(0, 6, 1), Span(1, 3, 2)], [11, 12, 13], [0, 1, 2]),
]


def test_a_ring_of_workers_is_the_whole(stack: ExitStack) -> None:
    first = start(stack, config(first=0, end=3, embed=True, head=True, parallel=2))
    middle = start(stack, config(first=3, end=LAYERS, parallel=2))
    for (spans, tokens, wanted), expected in zip(BATCHES, whole(*BATCHES), strict=True):
        rows = forward(middle, spans, forward(first, spans, embedded(first, tokens)), wanted)
        assert first.head(spans, rows, wanted).tobytes() == expected.tobytes()


def test_a_chain_of_workers_is_the_whole(stack: ExitStack) -> None:
    first = start(stack, config(first=0, end=3, embed=True, parallel=2))
    last = start(stack, config(first=3, end=LAYERS, head=True, parallel=2))
    for (spans, tokens, wanted), expected in zip(BATCHES, whole(*BATCHES), strict=True):
        logits = last.forward_head(spans, forward(first, spans, embedded(first, tokens)), wanted)
        assert logits.tobytes() == expected.tobytes()


def test_one_worker_is_the_whole(stack: ExitStack) -> None:
    only = start(stack, config(first=0, end=LAYERS, embed=True, head=True, parallel=2))
    for (spans, tokens, wanted), expected in zip(BATCHES, whole(*BATCHES), strict=True):
        assert only.forward_head(spans, embedded(only, tokens), wanted).tobytes() == expected.tobytes()


def test_one_that_only_chooses_tokens_gives_its_choice(stack: ExitStack) -> None:
    last = start(stack, config(f"{STUB} --lacks head", first=0, end=LAYERS, head=True))
    whole_rows = StubEngine(config(first=0, end=LAYERS, embed=True, head=True))
    rows = embedded(whole_rows, PROMPT)
    spans = [Span(0, 0, len(PROMPT))]
    expected = whole_rows.forward_head(spans, rows, [2, 8])
    chosen = last.forward_head(spans, rows, [2, 8])
    assert chosen.argmax(axis=1).tolist() == expected.argmax(axis=1).tolist()
    assert np.isneginf(chosen).sum() == 2 * (VOCABULARY - 1)


@pytest.mark.parametrize("row_dtype", list(RowDtype))
def test_every_boundary(stack: ExitStack, row_dtype: RowDtype) -> None:
    """The stub's values are exact in all three, so a boundary of another dtype changes nothing."""
    first = start(stack, config(first=0, end=3, embed=True, head=True, row_dtype=row_dtype))
    middle = start(stack, config(first=3, end=LAYERS, row_dtype=row_dtype))
    assert first.boundary.row_dtype is middle.boundary.row_dtype is row_dtype
    spans, tokens, wanted = BATCHES[0]
    rows = forward(middle, spans, forward(first, spans, embedded(first, tokens)), wanted)
    assert first.head(spans, rows, wanted).tobytes() == whole(BATCHES[0])[0].tobytes()


def test_rollback_save_and_restore(stack: ExitStack) -> None:
    only = start(stack, config(first=0, end=LAYERS, embed=True, head=True, parallel=2))
    only.forward_head([Span(0, 0, 9)], embedded(only, PROMPT), [8])
    state = only.save(0)
    only.keep(0, 5)
    expected = whole(BATCHES[0], ([Span(0, 5, 1)], [7], [0]))[1]
    assert only.forward_head([Span(0, 5, 1)], embedded(only, [7]), [0]).tobytes() == expected.tobytes()
    only.restore(1, state)
    only.keep(1, 5)
    assert only.forward_head([Span(1, 5, 1)], embedded(only, [7]), [0]).tobytes() == expected.tobytes()
    only.release(0)
    again = only.forward_head([Span(0, 0, 5)], embedded(only, PROMPT[:5]), [4])
    assert again.tobytes() == whole(BATCHES[0])[0].tobytes()


def test_a_bad_state_is_refused_and_nothing_else_happens(stack: ExitStack) -> None:
    only = start(stack, config(first=0, end=LAYERS, embed=True, head=True))
    with pytest.raises(EngineError, match="the worker refused: a state of 3 bytes"):
        only.restore(0, bytes(8) + bytes(8) + b"abc")
    only.forward_head([Span(0, 0, 5)], embedded(only, PROMPT[:5]), [4])


def test_what_it_cannot_do_is_refused_by_name(stack: ExitStack) -> None:
    plain = start(stack, config(f"{STUB} --lacks keep,save,head"))
    with pytest.raises(EngineError, match="cannot roll a stream back; run without drafts"):
        plain.keep(0, 1)
    with pytest.raises(EngineError, match="cannot save a stream's state"):
        plain.save(0)
    with pytest.raises(EngineError, match="cannot restore"):
        plain.restore(0, b"")
    with pytest.raises(EngineError, match="no head of its own"):
        plain.head([Span(0, 0, 1)], memoryview(bytearray(64)), [0])
    with pytest.raises(EngineError, match="slot 1, and the worker has 1"):
        forward(plain, [Span(1, 0, 1)], memoryview(bytearray(64)))
    with pytest.raises(EngineError, match="without the embeddings"):
        plain.embed([1], memoryview(bytearray(64)))


def test_a_head_that_the_layout_needs_and_the_worker_has_not() -> None:
    with pytest.raises(EngineError, match="ready line does not list 'head'; use --sampler last"):
        WorkerEngine(config(f"{STUB} --lacks head", first=0, end=3, embed=True, head=True))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer_range": [2, 5]}, r"has loaded layers 2\.\.5, the layout gives this stage 2\.\.6"),
        ({"hidden_dim": 32}, r"rows have 32 values, the layout's 16"),
        ({"status": "loading"}, r"status 'loading', expected 'ready'"),
        ({"layer_range": [6, 2]}, r"layer_range is 6\.\.2 of 8"),
        ({"layer_range": 5}, r"layer_range is 5, expected"),
        ({"pid": True}, r"pid is True, expected an integer"),
        ({"hidden_dim": "16"}, r"hidden_dim is '16'"),
        ({"eog_ids": [-1]}, r"eog_ids is -1"),
        ({"eog_ids": 3}, r"eog_ids are 3"),
        ({"bridge": []}, r"bridge is \[\], expected an object"),
        ({"bridge": {"version": 2}}, r"version 2 of the bridge's extension, expected 1"),
        ({"bridge": {"version": 1, "row_dtype": "f64"}}, r"row_dtype is 'f64', expected one of f32, f16, bf16"),
        ({"bridge": {"version": 1, "streams": 0}}, r"streams is 0"),
        ({"bridge": {"version": 1, "can": "keep"}}, r"can is 'keep'"),
    ],
)
def test_a_ready_line_that_does_not_suit(fields: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        WorkerEngine(config(bad("ready", json.dumps(fields))))


def test_what_it_declares_is_what_rank_0_hears(stack: ExitStack) -> None:
    bridge = {"version": 1, "row_dtype": "f32", "streams": 3, "context": 40, "chunk": 50, "backend": "cuda",
              "kv_dtype": "q8_0", "weights_bytes": 77, "can": ["keep", "dance"]}  # fmt: skip
    engine = start(stack, config(bad("ready", json.dumps({"bridge": bridge})), parallel=2))
    c = engine.capacities
    assert (c.parallel, c.context, c.chunk, c.max_rows, c.kv_rows) == (3, 40, 50, 50, 120)
    assert (engine.backend, engine.kv_dtype, engine.weights_bytes) == (Backend.CUDA, KvDtype.Q8_0, 77)
    plain = start(stack, config(bad("ready", "{}"), parallel=2))
    assert (plain.capacities.parallel, plain.capacities.context, plain.capacities.chunk) == (1, 64, 16)
    assert (plain.backend, plain.kv_dtype, plain.weights_bytes) == (Backend.OTHER, KvDtype.F16, 0)


def test_a_slot_that_stands_elsewhere_is_an_error(stack: ExitStack) -> None:
    engine = start(stack, replace(config(), parallel=2))
    forward(engine, [Span(1, 0, 2)], memoryview(bytearray(128)))
    with pytest.raises(EngineError, match="slot 1 holds 2 positions"):
        forward(engine, [Span(1, 4, 1)], memoryview(bytearray(64)))
