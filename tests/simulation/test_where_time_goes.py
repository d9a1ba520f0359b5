"""What the ring tells of its time, held against rings whose times are known: the simulated clock's."""

from __future__ import annotations

import pytest

from fake_engine import Shape
from ropeway.serving.figures import stage_shares
from ropeway.serving.overlap import overlap
from ropeway.serving.part_size import Cost
from ropeway.serving.spans import draw
from simulation.ring import FREE, Simulated, Speeds, simulated
from simulation.test_makespan import CHUNK, ask, shape


def settled(ring: Simulated) -> tuple[int, int]:
    """Nanoseconds since the first round's launch, and now."""
    return ring.clock.now_ns - ring.loop.records[0].launched_ns, ring.clock.now_ns


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("parts", [1, 2, 8])
def test_a_prompt_without_links_is_ideal(world: int, parts: int) -> None:
    with simulated(Speeds((Cost(3.0, 2.0),) * world), shape(world)) as ring:
        ring.serve([ask(0, CHUNK * parts)])
        found = overlap(ring.loop.records, world, 0)
        assert found is not None
        assert found.efficiency == pytest.approx(1.0)
        assert found.at_work == pytest.approx(parts * world / (parts + world - 1))


def test_what_a_link_costs_a_lone_stream() -> None:
    """7 ms a stage, 3 ms a hop, 1 ms of head: of 21 ms 15 are computing, and every stage has 3 of wire."""
    speeds = Speeds((Cost(7.0, 0.0),) * 2, (Cost(3.0, 0.0),) * 2, 1.0)
    with simulated(speeds, shape(2)) as ring:
        ring.serve([ask(0, 1, 40)])
        found = overlap(ring.loop.records, 2, 0)
        assert found is not None
        assert found.efficiency == pytest.approx(15 / 21)
        window, now = settled(ring)
        # Rank 1 waits 7 for rank 0's layers, and between its rounds for a plan, which is "other".
        for rank, busy, waiting in ((0, 8 / 21, 10 / 21), (1, 7 / 21, 7 / 21)):
            shares = stage_shares(ring.loop.records, rank, 2, now, window)
            assert shares.forward == pytest.approx(busy, rel=0.01)
            assert shares.wire == pytest.approx(3 / 21, rel=0.02)
            assert shares.waiting == pytest.approx(waiting, rel=0.02)


def test_a_slow_link_is_seen_as_waits_for_buffers() -> None:
    """The link takes twice a stage's time: rank 0 is busy half the time, and waits for the wire the other half."""
    with simulated(Speeds((Cost(5.0, 0.0),) * 2, (Cost(10.0, 0.0), FREE)), shape(2, context=200)) as ring:
        ring.serve([ask(0, CHUNK * 40)])
        window, now = settled(ring)
        shares = stage_shares(ring.loop.records, 0, 2, now, window)
        assert shares.forward == pytest.approx(0.5, abs=0.04)
        assert shares.wire == pytest.approx(0.45, abs=0.05)
        found = overlap(ring.loop.records, 2, 0)
        assert found is not None
        assert found.efficiency == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_groups_on_as_many_stages_are_ideal(world: int) -> None:
    with simulated(Speeds((Cost(0.0, 6.0),) * world), shape(world, parallel=world), groups=world) as ring:
        ring.serve([ask(number, 1, 60) for number in range(world)])
        records = [record for record in ring.loop.records if record.rows == 1][world : -2 * world]
        found = overlap(records, world, 0)
        assert found is not None
        assert found.efficiency == pytest.approx(1.0, abs=0.01)
        assert found.at_work == pytest.approx(world, rel=0.03)


@pytest.mark.parametrize("world", [2, 4])
def test_spans_are_drawn_where_they_were(world: int) -> None:
    """Without links a stage's forwards are where they truly were: behind those of the stage before."""
    costs = tuple(Cost(2.0 + rank % 2, 1.0) for rank in range(world))
    with simulated(Speeds(costs), Shape(layers=world, chunk=CHUNK, parallel=1, context=80, max_rows=80)) as ring:
        true: dict[int, list[tuple[float, float]]] = {rank: [] for rank in range(world)}
        for rank, engine in enumerate(ring.engines):
            engine.ran = true[rank].append
        ring.serve([ask(0, 8 * CHUNK, 3)])
        for rank, spans in enumerate(draw(ring.loop.records, world)):
            drawn = [(span.start_ns / 1e9, span.end_ns / 1e9) for span in spans if span.kind == "forward"]
            assert drawn == [pytest.approx(pair, abs=1e-6) for pair in true[rank]]
