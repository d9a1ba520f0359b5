"""Parts, groups and drafts on a simulated clock: nothing is overwritten, nothing waits for itself, and time is as
reckoned. Milliseconds; a ring is the real loop and followers on links and engines that take time.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_engine import VOCABULARY, Shape, reply_alone
from ropeway.serving.loop import Loop
from ropeway.serving.part_size import Cost, prompt_ms
from ropeway.serving.sequence import Sequence
from simulation.clock import Clock, Stuck
from simulation.ring import FREE, Simulated, Speeds, simulated

CHUNK = 4
COSTS = st.builds(Cost, st.integers(0, 9).map(float), st.integers(0, 5).map(float))


def shape(world: int, *, parallel: int = 1, context: int = 80) -> Shape:
    return Shape(layers=world, chunk=CHUNK, parallel=parallel, context=context, max_rows=context)


def ask(number: int, rows: int, tokens: int = 1, *, every_row: bool = False) -> Sequence:
    prompt = tuple((number + 3 * at) % VOCABULARY for at in range(rows))
    return Sequence(number, prompt, tokens, every_row=every_row)


def judge(sequence: Sequence, world: int) -> None:
    assert sequence.produced == reply_alone(sequence.prompt, sequence.max_tokens, world)


def first_ms(ring: Simulated, sequence: Sequence) -> float:
    return 1e3 * ring.commits[sequence.id][0]


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("parts", [1, 2, 3, 8, 17])
def test_n_parts_on_s_stages_take_n_plus_s_minus_1_stage_times(world: int, parts: int) -> None:
    with simulated(Speeds((Cost(3.0, 2.0),) * world), shape(world)) as ring:
        one = ask(0, CHUNK * parts)
        ring.serve([one])
        judge(one, world)
        assert first_ms(ring, one) == pytest.approx((parts + world - 1) * (3.0 + CHUNK * 2.0))


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_uneven_stages_and_links(data: st.DataObject) -> None:
    """Every stage and every link is a step; the last row comes back over the last link, and the head runs."""
    world = data.draw(st.integers(1, 5), "world")
    stages = tuple(data.draw(COSTS, f"stage {rank}") for rank in range(world))
    links = tuple(data.draw(COSTS, f"link {rank}") for rank in range(world))
    head_ms = float(data.draw(st.integers(0, 5), "head"))
    rows = data.draw(st.integers(1, 60), "rows")
    with simulated(Speeds(stages, links, head_ms), shape(world)) as ring:
        one = ask(0, rows)
        ring.serve([one])
        judge(one, world)
        steps = [stages[0]]
        for link, stage in zip(links, stages[1:], strict=False):
            steps += [link, stage]
        back_ms = 0.0 if world == 1 else links[-1].part_ms(1) + head_ms
        assert first_ms(ring, one) == pytest.approx(prompt_ms(rows, CHUNK, steps) + back_ms)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_as_many_groups_as_stages_keep_every_stage_at_work(world: int) -> None:
    """A round takes s stage-times; with s of them under way there is one in every stage-time."""
    took: dict[int, float] = {}
    for groups in (1, world):
        with simulated(Speeds((Cost(6.0, 0.0),) * world), shape(world, parallel=world), groups=groups) as ring:
            streams = [ask(number, 3, 30) for number in range(world)]
            ring.serve(streams)
            for one in streams:
                judge(one, world)
                gaps = [1e3 * (b - a) for a, b in zip(ring.commits[one.id][5:], ring.commits[one.id][6:], strict=False)]
                assert gaps == pytest.approx([6.0 * world] * len(gaps)), "no stream is slower for it"
            took[groups] = max(times[-1] for times in ring.commits.values())
    # Here a round costs the same however many streams it has: so one group of all is as quick, and no quicker.
    assert took[world] == pytest.approx(took[1], rel=0.2)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_groups_are_worth_their_number_where_rows_cost(world: int) -> None:
    """A row costs a stage-time: one group of s streams takes s x s of them for s tokens, s groups of one take s."""
    took: dict[int, float] = {}
    for groups in (1, world):
        with simulated(Speeds((Cost(0.0, 6.0),) * world), shape(world, parallel=world), groups=groups) as ring:
            streams = [ask(number, 1, 41) for number in range(world)]
            ring.serve(streams)
            took[groups] = max(times[-1] for times in ring.commits.values()) * 1e3
    # One group: 40 rounds of s rows through s stages. s groups: 40 rounds of s stage-times each, side by side.
    assert took[1] == pytest.approx(41 * world * world * 6.0)
    assert took[world] <= (41 * world + 2 * world * world) * 6.0


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("world", [1, 2, 5])
def test_a_lone_stream_is_never_slower_for_groups(world: int, groups: int) -> None:
    speeds = Speeds((Cost(3.0, 1.0),) * world, (Cost(0.5, 0.1),) * world, 0.7)
    commits = []
    for count in (1, groups):
        with simulated(speeds, shape(world), groups=count) as ring:
            ring.serve([ask(0, 21, 12)])
            commits.append(ring.commits[0])
    assert commits[0] == commits[1]


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("parts", [1, 2, 4, 11])
def test_rows_that_all_come_back_part_by_part(world: int, parts: int) -> None:
    """What comes back is read before the ring holds more than it can: it would wait for itself."""
    with simulated(Speeds((Cost(5.0, 0.0),) * world), shape(world)) as ring:
        one = ask(0, CHUNK * parts, 3, every_row=True)
        ring.serve([one])
        judge(one, world)
        reckoned = (parts + world - 1) * 5.0
        # Rank 0 reads once 2 a boundary are unread, but four buffers on the way back hold what it has not read: behind
        # that the last rank waits for it.
        late = 2 * 5.0 if parts > 2 * world and world > 4 else 0.0
        assert first_ms(ring, one) == pytest.approx(reckoned + late)


def test_a_loop_that_did_not_read_in_time_would_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loop, "_make_room", lambda _: None)
    with (
        simulated(Speeds((Cost(5.0, 0.0),) * 2), shape(2)) as ring,
        pytest.raises(Stuck, match="rank 1 waits for a buffer to send from; rank 0 waits for a buffer to send from"),
    ):
        ring.serve([ask(0, CHUNK * 17, every_row=True)])


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_verify_round_in_parts_takes_n_plus_s_minus_1(world: int) -> None:
    def propose(sequence: Sequence, most: int) -> tuple[int, ...]:
        right = reply_alone(sequence.prompt, 40, world)
        done = len(sequence.produced)
        return tuple(right[done : done + min(most, 3)])

    # A prompt of one row, then rounds of 1 + 3 rows, each a part of its own.
    with simulated(
        Speeds((Cost(0.0, 4.0),) * world), shape(world), propose=propose, cut=lambda rows, _: (1,) * rows
    ) as ring:
        one = ask(0, 1, 9)
        ring.serve([one])
        judge(one, world)
        assert [1e3 * at for at in ring.commits[0]] == pytest.approx(
            [4.0 * world, 4.0 * (world + 4 + world - 1), 4.0 * (world + 2 * (4 + world - 1))]
        )


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_anything_at_any_speed_ends_with_the_right_text(data: st.DataObject) -> None:
    world = data.draw(st.integers(1, 5), "world")
    groups = data.draw(st.integers(1, 4), "groups")
    speeds = Speeds(
        tuple(data.draw(COSTS, "stage") for _ in range(world)),
        tuple(data.draw(COSTS, "link") for _ in range(world)),
        float(data.draw(st.integers(0, 3), "head")),
    )
    wrong = data.draw(st.integers(2, 5), "every so-many-th guess is wrong")

    def propose(sequence: Sequence, most: int) -> tuple[int, ...]:
        done = len(sequence.produced)
        right = reply_alone(sequence.prompt, sequence.max_tokens, world)[done : done + most]
        return tuple(token if (done + at) % wrong else token + 1 for at, token in enumerate(right))

    drafts = data.draw(st.booleans(), "drafts")
    apart = data.draw(st.booleans(), "apart")
    with simulated(
        speeds,
        shape(world, parallel=3),
        groups=groups,
        propose=propose if drafts else lambda _, __: (),
        cut=(lambda rows, _: (1,) * rows) if apart else (lambda rows, _: (rows,)),
    ) as ring:
        streams = [
            ask(number, data.draw(st.integers(1, 50)), data.draw(st.integers(1, 8)), every_row=data.draw(st.booleans()))
            for number in range(data.draw(st.integers(1, 5), "streams"))
        ]
        ring.serve(streams)
        for one in streams:
            judge(one, world)


def test_what_waits_for_itself_is_found() -> None:
    clock = Clock()
    try:
        clock.spawn("one", lambda: clock.wait(lambda: False, "the other"))
        with pytest.raises(Stuck, match="one waits for the other; two waits for one"):
            clock.run("two", lambda: clock.wait(lambda: False, "one"))
    finally:
        clock.close()


def test_a_stage_that_writes_too_late_is_found() -> None:
    with simulated(Speeds((Cost(1.0, 0.0), Cost(9.0, 0.0)), (Cost(2.0, 0.0), FREE)), shape(2)) as ring:
        late: list[memoryview] = []
        send = ring.seats[0].send_rows
        run = ring.engines[0]._run

        def keep(round_: int, part: int, rows: int, buffer: memoryview) -> None:
            late.append(buffer)
            send(round_, part, rows, buffer)

        def spoil(*args: object) -> object:
            run_result = run(*args)  # type: ignore[arg-type]
            if late:
                late[-1][:1] = b"!"
            return run_result

        ring.seats[0].send_rows = keep  # type: ignore[method-assign]
        ring.engines[0]._run = spoil  # type: ignore[method-assign, assignment]
        with pytest.raises(AssertionError, match="overwritten in flight"):
            ring.serve([ask(0, 3 * CHUNK)])
