"""The contract of base.py, held by every engine: a split has the bits of the whole, slots are apart, states go back.

An engine is skipped by name where what it computes with is not installed, and where it declares that it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from engines.kits import CHUNK, CONTEXT, KITS, LAYERS, PARALLEL, WIDTH, Kit, Split
from ropeway.engines.base import EngineConfig, EngineError, Logits, Span
from ropeway.engines.registry import ENGINES, make_engine
from tiny_gguf import VOCABULARY

Make = Callable[..., Split]


@pytest.fixture(params=KITS, ids=lambda kit: kit.name, scope="module")
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = request.param
    found.need()
    return found


@pytest.fixture(scope="module")
def config(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineConfig]:
    folder = tmp_path_factory.mktemp(kit.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROPEWAY_CACHE", str(folder / "cache"))
        yield kit.config(folder)


@pytest.fixture
def make(kit: Kit, config: EngineConfig) -> Iterator[Make]:
    made: list[Split] = []

    def split(*cuts: int, chain: bool = False) -> Split:
        edges = (0, *cuts, LAYERS)
        last = len(edges) - 2
        stages = [
            kit.stage(config, first, end, embed=rank == 0, head=rank == (last if chain else 0))
            for rank, (first, end) in enumerate(pairwise(edges))
        ]
        made.append(Split(stages, chain=chain))
        return made[-1]

    yield split
    for one in made:
        one.close()


def need(kit: Kit, ability: str) -> None:
    if ability in kit.lacks:
        pytest.skip(f"{kit.name} declares that it cannot {ability}")


def prompt(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, VOCABULARY, count)]


def steps(drive: Callable[[Sequence[Span], Sequence[int], Sequence[int]], Logits]) -> Iterator[bytes]:
    """Batches of every kind: a prompt by parts, decodes, streams together, a gap between slots, several rows wanted."""
    tokens = prompt(1, 75)
    yield drive([Span(0, 0, 64)], tokens[:64], [63]).tobytes()
    yield drive([Span(0, 64, 11)], tokens[64:], [10]).tobytes()
    for position in range(75, 79):
        yield drive([Span(0, position, 1)], [position], [0]).tobytes()
    yield drive([Span(2, 0, 20)], prompt(2, 20), [19]).tobytes()
    yield drive([Span(0, 79, 1), Span(2, 20, 1)], [7, 8], [0, 1]).tobytes()
    yield drive([Span(0, 80, 1), Span(1, 0, 9), Span(2, 21, 1)], prompt(3, 11), [0, 9, 10]).tobytes()
    yield drive([Span(1, 9, 4)], prompt(4, 4), [0, 1, 2, 3]).tobytes()


def test_it_describes_itself_before_it_loads(kit: Kit, config: EngineConfig) -> None:
    with closing(
        make_engine(kit.engine, replace(config, first=1, end=3, embed=False, head=False, rank=1, world=3))
    ) as e:
        assert e.kind is ENGINES[kit.engine].kind
        assert (e.boundary.hidden, e.boundary.planes, e.boundary.row_dtype) == (WIDTH, 1, kit.row_dtype)
        c = e.capacities
        assert c.parallel >= PARALLEL
        assert c.context >= CONTEXT
        assert c.chunk >= CHUNK
        assert c.max_rows >= c.chunk
        assert c.kv_rows >= CONTEXT


@pytest.mark.parametrize("chain", [False, True], ids=["ring", "chain"])
@pytest.mark.parametrize("cuts", [(1,), (2,), (1, 3)], ids=str)
def test_a_split_is_the_whole(kit: Kit, config: EngineConfig, make: Make, cuts: tuple[int, ...], chain: bool) -> None:
    split = make(*cuts, chain=chain)
    with closing(kit.whole(config)) as whole:
        for number, (ours, theirs) in enumerate(zip(steps(split.forward), steps(whole.forward), strict=True)):
            assert ours == theirs, f"batch {number}"


def test_a_comparison_that_can_fail(make: Make) -> None:
    """What is left of a stage's state shows."""
    split = make(2)
    right = split.prompt(0, prompt(5, 30)).tobytes()
    split.release(0)
    split.prompt(0, prompt(6, 29))
    after = split.forward([Span(0, 29, 1)], [prompt(5, 30)[-1]], [0])
    assert after.tobytes() != right
    assert np.isfinite(after).all()
    assert after.std() > 0


def test_a_used_slot_gives_the_bits_of_a_new_one(make: Make) -> None:
    split = make(2)
    new = split.prompt(0, prompt(7, 70)).tobytes()
    split.release(0)
    split.prompt(0, prompt(8, 100))
    split.prompt(1, prompt(9, 40))
    split.release(0)
    assert split.prompt(0, prompt(7, 70)).tobytes() == new
    assert split.prompt(2, prompt(7, 70)).tobytes() == new


def test_a_rollback_leaves_nothing_behind(kit: Kit, make: Make) -> None:
    need(kit, "keep")
    split = make(2)
    tokens = prompt(10, 40)
    split.prompt(0, tokens)
    expected = [split.forward([Span(0, 40 + at, 1)], [5 + at], [0]).tobytes() for at in range(4)]
    split.prompt(1, tokens)
    split.forward([Span(1, 40, 1)], [5], [0])
    split.forward([Span(1, 41, 3)], [9, 9, 9], [0, 1, 2])
    split.keep(1, 41)
    assert [split.forward([Span(1, 40 + at, 1)], [5 + at], [0]).tobytes() for at in range(1, 4)] == expected[1:]


def test_a_rollback_into_the_last_rows(kit: Kit, make: Make) -> None:
    """Close, not equal: what stays may have run among other rows."""
    need(kit, "keep")
    split = make(1, 2)
    tokens = prompt(11, 20)
    split.prompt(0, tokens)
    split.forward([Span(0, 20, 4)], [5, 6, 7, 8], [0, 1, 2, 3])
    split.keep(0, 22)
    rolled = split.forward([Span(0, 22, 1)], [9], [0])
    fresh = split.prompt(1, [*tokens, 5, 6, 9])
    assert np.abs(rolled[0] - fresh).max() < 0.1
    assert int(rolled[0].argmax()) == int(fresh.argmax())


def test_a_saved_slot_goes_on_in_another(kit: Kit, make: Make) -> None:
    need(kit, "save")
    split = make(2)
    split.prompt(0, prompt(12, 50))
    states = [engine.save(0) for engine in split.stages]
    expected = split.forward([Span(0, 50, 1)], [7], [0]).tobytes()
    split.prompt(2, prompt(13, 30))
    split.release(2)
    for engine, state in zip(split.stages, states, strict=True):
        engine.restore(2, state)
    assert split.forward([Span(2, 50, 1)], [7], [0]).tobytes() == expected


def test_a_state_that_is_none_is_refused(kit: Kit, make: Make) -> None:
    need(kit, "save")
    split = make(2)
    with pytest.raises(EngineError):
        split.stages[1].restore(0, b"no state at all")


def test_wanted_rows_are_those_of_all(make: Make) -> None:
    split = make(2)
    tokens = prompt(14, 24)
    size = split.stages[0].boundary.row_bytes()
    rows = memoryview(bytearray(size * 24))
    split.stages[0].embed(tokens, rows)
    middle, every, some = (memoryview(bytearray(size * count)) for count in (24, 24, 3))
    split.stages[0].forward([Span(0, 0, 24)], rows, middle)
    split.stages[1].forward([Span(0, 0, 24)], middle, every)
    split.stages[1].release(0)
    split.stages[1].forward([Span(0, 0, 24)], middle, some, [2, 11, 23])
    assert any(every)
    if split.stages[1].kind.name != "LLAMACPP":  # whose last layer runs on the wanted rows alone
        assert bytes(some) == b"".join(every[row * size : (row + 1) * size] for row in (2, 11, 23))


def test_what_a_stage_has_not_is_an_error(kit: Kit, config: EngineConfig) -> None:
    with closing(kit.stage(config, 1, 3, embed=False, head=False)) as engine:
        row = memoryview(bytearray(engine.boundary.row_bytes()))
        with pytest.raises(EngineError):
            engine.embed([5], row)
        with pytest.raises(EngineError):
            engine.head([Span(0, 0, 1)], row, [0])
        with pytest.raises(EngineError):
            engine.forward_head([Span(0, 0, 1)], row, [0])
