"""A rank that follows, with rank 0's part played by hand over real rings: rows on, rows back, tokens, dones."""

from __future__ import annotations

import pytest

from fake_engine import Shape, logits_of, values_of
from fake_ranks import FakeRing, fake_ring
from ropeway.transport import Ring, RingLost, RingStopped
from ropeway.types import SamplerAt
from ropeway.wire import CacheAck, CacheAction, CacheOp, Done, ErrorCode, Op, Plan, Returns, StreamEntry

KEY = bytes(range(16))
SHAPE = Shape(layers=4, context=64, max_rows=64)


def live(ring: FakeRing) -> Ring:
    assert ring.rank0.ring is not None
    return ring.rank0.ring


def dones(ring: FakeRing, number: int) -> list[Done]:
    """Every stage's done of a round, by rank; none comes twice."""
    got = [live(ring).next_done() for _ in range(ring.layout.world - 1)]
    assert [found for _, found, _ in got] == [number] * len(got)
    ordered = sorted((done for _, _, done in got), key=lambda done: done.rank)
    assert [done.rank for done in ordered] == list(range(1, ring.layout.world))
    return ordered


def launch(ring: FakeRing, plan: Plan, tokens: tuple[int, ...] = ()) -> int:
    """Rank 0's half of a round."""
    stage, number = ring.rank0.stage, live(ring).send_plan(plan)
    work = stage.begin(plan)
    for index, part in enumerate(work.parts):
        rows = memoryview(bytearray(part.rows * stage.row_bytes))
        stage.embed(tokens[part.start : part.start + part.rows], rows)
        out = live(ring).send_buffer(len(rows))
        stage.forward(part, rows, out)
        live(ring).send_rows(number, index, part.rows, out)
    stage.finish(work)
    return number


def back(ring: FakeRing, number: int, part: int = 0) -> list[tuple[int, int]]:
    """The (value, position) of the rows in a frame that came back."""
    rows = live(ring).receive_rows(number, part)
    words = memoryview(bytes(rows)).cast("Q")
    live(ring).release_rows()
    return [(words[at], words[at + 1]) for at in range(0, len(words), 4)]


def both(first: int, second: int, returns: Returns = Returns.LAST, listed: tuple[int, ...] = ()) -> Plan:
    """Two new streams, in parts of 8 rows."""
    entries = (StreamEntry(0, Op.OPEN, rows=first), StreamEntry(1, Op.OPEN, rows=second))
    return Plan(entries, tuple(range(8, first + second, 8)), (), (), returns, listed)


ONE, TWO = tuple(range(13)), tuple(range(20, 27))
VALUES = [list(zip(values_of(tokens, 4), range(20), strict=False)) for tokens in (ONE, TWO)]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_the_last_row_of_each_stream_comes_back(world: int) -> None:
    with fake_ring(world, SHAPE) as ring:
        number = launch(ring, both(13, 7), ONE + TWO)
        assert back(ring, number) == [VALUES[0][-1], VALUES[1][-1]]
        for done in dones(ring, number):
            assert done.acks == ()
            assert done.forward_ns > 0
        assert [engine.held for engine in ring.engines] == [20] * world


@pytest.mark.parametrize("world", [2, 3])
def test_every_row_comes_back_part_by_part(world: int) -> None:
    with fake_ring(world, SHAPE) as ring:
        number = launch(ring, both(13, 7, Returns.ALL), ONE + TWO)
        every = [row for part in range(3) for row in back(ring, number, part)]
        assert every == VALUES[0] + VALUES[1]
        dones(ring, number)


@pytest.mark.parametrize("world", [2, 3])
def test_the_rows_that_are_listed_come_back(world: int) -> None:
    with fake_ring(world, SHAPE) as ring:
        number = launch(ring, both(13, 7, Returns.LISTED, (5, 2)), ONE + TWO)
        assert back(ring, number) == VALUES[0][-5:] + VALUES[1][-2:]
        dones(ring, number)


def test_a_round_that_brings_nothing_back_is_done_all_the_same() -> None:
    with fake_ring(3, SHAPE) as ring:
        number = launch(ring, both(13, 7, Returns.LISTED, (0, 0)), ONE + TWO)
        dones(ring, number)
        number = launch(ring, Plan((StreamEntry(0, Op.CLOSE), StreamEntry(1, Op.CANCEL))))
        dones(ring, number)
        assert [engine.held for engine in ring.engines] == [0, 0, 0]
        # The rows of the next round are the next to come.
        number = launch(ring, Plan((StreamEntry(2, Op.OPEN, rows=7),)), TWO)
        assert back(ring, number) == VALUES[1][-1:]
        dones(ring, number)


def test_states_are_acknowledged_by_every_rank() -> None:
    with fake_ring(3, SHAPE) as ring:
        save = CacheOp(CacheAction.SAVE, 0, KEY)
        number = launch(ring, Plan((StreamEntry(0, Op.OPEN, rows=7),), cache=(save,)), TWO)
        back(ring, number)
        assert [done.acks for done in dones(ring, number)] == [(CacheAck(KEY, True),)] * 2
        entries = (StreamEntry(0, Op.CLOSE), StreamEntry(1, Op.RESUME, 5, 2, 0, 5))
        number = launch(ring, Plan(entries, cache=(CacheOp(CacheAction.RESTORE, 1, KEY),)), TWO[5:])
        assert back(ring, number) == VALUES[1][-1:]
        dones(ring, number)
        number = launch(ring, Plan(cache=(CacheOp(CacheAction.DROP, 0, KEY),)))
        assert [done.acks for done in dones(ring, number)] == [(), ()]
        assert [stage.kept_bytes for stage in ring.stages] == [0, 0, 0]


@pytest.mark.parametrize("world", [2, 3])
def test_the_last_rank_chooses_where_it_has_the_head(world: int) -> None:
    """The likeliest token of each stream's last row, and where its next forward begins."""
    with fake_ring(world, SHAPE, sampler=SamplerAt.LAST) as ring:
        best = [int(logits_of([values[-1][0]])[0].argmax()) for values in VALUES]
        number = launch(ring, both(13, 7), ONE + TWO)
        tokens = live(ring).receive_tokens(number).tokens
        assert [(one.stream, one.token, one.position, one.done) for one in tokens] == [
            (0, best[0], 13, False),
            (1, best[1], 7, False),
        ]
        dones(ring, number)
        more = (StreamEntry(0, Op.CLOSE), StreamEntry(1, Op.CONTINUE, 7, 3, 7), StreamEntry(2, Op.OPEN, rows=7))
        number = launch(ring, Plan(more, (3,), (), (), Returns.LISTED, (0, 2, 0)), (1, 2, 3, *TWO))
        (token,) = live(ring).receive_tokens(number).tokens
        value = values_of((*TWO, 1, 2, 3), 4)[-1]
        assert (token.stream, token.token, token.position) == (1, int(logits_of([value])[0].argmax()), 10)
        dones(ring, number)
        number = launch(ring, Plan((StreamEntry(1, Op.CANCEL),)))
        dones(ring, number)


def test_the_last_rank_says_where_a_stream_ends() -> None:
    best = [int(logits_of([values[-1][0]])[0].argmax()) for values in VALUES]
    assert best[0] != best[1]
    with fake_ring(2, SHAPE, sampler=SamplerAt.LAST, end_tokens=frozenset(best[:1])) as ring:
        number = launch(ring, both(13, 7), ONE + TWO)
        assert [one.done for one in live(ring).receive_tokens(number).tokens] == [True, False]


def test_a_plan_that_cannot_be_run_ends_the_ring_at_rank_0() -> None:
    def run() -> None:
        with fake_ring(3, SHAPE) as ring:
            live(ring).send_plan(Plan((StreamEntry(5, Op.CLOSE),)))
            live(ring).next_done()

    with pytest.raises(RingLost, match="stream 5") as caught:
        run()
    assert (caught.value.code, caught.value.rank) == (ErrorCode.STREAM_UNKNOWN, 0)


def test_a_follower_leaves_when_the_ring_is_stopped() -> None:
    with fake_ring(4, SHAPE) as ring:
        number = launch(ring, both(13, 7), ONE + TWO)
        back(ring, number)
    assert [type(end.result()) for end in ring.ends] == [RingStopped] * 3
