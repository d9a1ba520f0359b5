"""Who takes part in a round, one decision a test."""

from __future__ import annotations

import pytest

from ropeway.serving.prompts import ROUND_PIECES, PromptTooLong
from ropeway.serving.scheduler import Scheduler
from ropeway.serving.sequence import Finish, Sequence, State
from ropeway.wire import Op, Returns
from serving.turns import ask, planned, rows_of, scheduler, turn


@pytest.mark.parametrize("max_rows", [40, 20])
def test_a_lone_prompt_takes_two_parts_a_round(max_rows: int) -> None:
    one = scheduler(max_rows=max_rows)
    assert (one.piece, ROUND_PIECES) == (8, 2)
    one.add(ask(1, 30))
    first, second = turn(one), turn(one)
    assert rows_of(first) == {1: (Op.OPEN, 0, 16)}
    assert first.plan.cuts == (8,)
    assert first.plan.returned_count == 0
    assert first.wanted == ()
    assert rows_of(second) == {1: (Op.CONTINUE, 16, 14)}
    assert second.plan.entries[0].accepted == 16
    assert second.plan.cuts == (8,)
    assert second.plan.returns is Returns.LAST
    assert (*first.tokens, *second.tokens) == tuple(range(30))
    assert [(wanted.row, wanted.rows, wanted.position, wanted.sample) for wanted in second.wanted] == [(0, 1, 29, True)]
    assert turn(one).tokens == (7,)


def test_a_cancel_inside_a_long_prompt_waits_for_no_more_than_its_round() -> None:
    one = scheduler(parallel=1)
    one.add(ask(1, 50))
    one.add(ask(2, 3))
    turn(one)
    one.cancel(1)
    assert rows_of(turn(one)) == {1: (Op.CANCEL, 0, 0), 2: (Op.OPEN, 0, 3)}


def test_a_prompt_whose_every_row_comes_back_takes_one_round() -> None:
    one = scheduler()
    one.add(Sequence(1, tuple(range(30)), 4, every_row=True))
    scheduled = turn(one)
    assert rows_of(scheduled) == {1: (Op.OPEN, 0, 30)}
    assert scheduled.plan.cuts == (8, 16, 24)
    assert scheduled.plan.returns is Returns.ALL


def test_beside_decodes_a_prompt_enters_one_part_a_round() -> None:
    one = scheduler()
    one.add(ask(1, 3))
    turn(one)
    one.add(ask(2, 20))
    rounds = [turn(one) for _ in range(4)]
    assert [rows_of(scheduled) for scheduled in rounds] == [
        {1: (Op.CONTINUE, 3, 1), 2: (Op.OPEN, 0, 8)},
        {1: (Op.CONTINUE, 4, 1), 2: (Op.CONTINUE, 8, 8)},
        {1: (Op.CONTINUE, 5, 1), 2: (Op.CONTINUE, 16, 4)},
        {1: (Op.CONTINUE, 6, 1), 2: (Op.CONTINUE, 20, 1)},
    ]
    assert [scheduled.plan.cuts for scheduled in rounds] == [(1,), (1,), (1,), ()]
    assert [scheduled.plan.listed for scheduled in rounds] == [(1, 0), (1, 0), (), ()]
    assert [scheduled.plan.returns for scheduled in rounds][2:] == [Returns.LAST, Returns.LAST]


def test_short_prompts_share_a_part_in_their_order() -> None:
    one = scheduler(chunk=10, parallel=6)
    one.add(ask(1, 2))
    turn(one)
    for number, size in ((2, 4), (3, 5), (4, 3), (5, 1)):
        one.add(ask(number, size))
    assert rows_of(turn(one)) == {1: (Op.CONTINUE, 2, 1), 2: (Op.OPEN, 0, 4), 3: (Op.OPEN, 0, 5)}
    third = turn(one)
    assert set(rows_of(third)) == {1, 2, 3, 4, 5}
    assert third.plan.cuts == (3,)


def test_many_prompts_at_once_are_packed() -> None:
    one = scheduler(chunk=10, max_rows=30)
    for number, size in ((1, 6), (2, 4), (3, 11), (4, 2)):
        one.add(ask(number, size))
    scheduled = turn(one)
    assert [entry.rows for entry in scheduled.plan.entries] == [6, 4, 11, 2]
    assert scheduled.plan.cuts == (10, 20)
    assert scheduled.plan.returned_rows() == [5, 9, 20, 22]


def test_decodes_of_more_streams_than_a_part_holds_are_cut() -> None:
    one = scheduler(parallel=5, chunk=2)
    for number in range(5):
        one.add(ask(number, 1))
    turn(one)
    assert turn(one).plan.cuts == (2, 4)


def test_a_cancelled_stream_gives_its_slot_to_the_next_plan() -> None:
    one = scheduler(parallel=1)
    first, second = ask(1, 3), ask(2, 3)
    one.add(first)
    one.add(second)
    turn(one)
    assert one.waiting == 1
    one.cancel(1)
    assert (first.state, first.finish) == (State.FINISHED, Finish.CANCELLED)
    assert rows_of(turn(one)) == {1: (Op.CANCEL, 0, 0), 2: (Op.OPEN, 0, 3)}


def test_cancelled_before_it_entered_costs_no_round() -> None:
    one = scheduler()
    first = ask(1, 3)
    one.add(first)
    one.cancel(1)
    assert first.finish is Finish.CANCELLED
    assert one.next_plan() is None
    assert one.idle
    one.cancel(1)
    one.cancel(99)


def test_what_is_under_way_for_a_cancelled_stream_is_passed_over() -> None:
    one = scheduler()
    first, second = ask(1, 3), ask(2, 3)
    one.add(first)
    one.add(second)
    under_way = planned(one)
    one.cancel(1)
    committed = one.commit(under_way, {2: [5]})
    assert [(result.sequence.id, result.tokens) for result in committed] == [(2, (5,))]
    assert first.produced == []


def test_the_last_token_closes_in_the_next_plan_and_then_all_is_idle() -> None:
    one = scheduler()
    first = ask(1, 3, max_tokens=1)
    one.add(first)
    turn(one)
    assert (first.produced, first.finish) == ([7], Finish.LENGTH)
    assert not one.idle
    assert one.running == one.reserved_rows == 0
    last = turn(one)
    assert rows_of(last) == {1: (Op.CLOSE, 0, 0)}
    assert last.plan.rows == 0
    assert last.plan.returns is Returns.LAST
    assert one.idle


def test_a_stop_token_ends_and_is_no_part_of_the_reply() -> None:
    one = scheduler()
    first = Sequence(1, (1, 2), 1, stop_ids=frozenset({7}))
    one.add(first)
    turn(one)
    assert first.finish is Finish.STOP
    assert (first.produced, first.reply) == ([7], [])


def test_a_stop_from_outside_closes() -> None:
    one = scheduler()
    first = ask(1, 3)
    one.add(first)
    turn(one)
    one.finish(1, Finish.STOP)
    assert first.finish is Finish.STOP
    assert rows_of(turn(one)) == {1: (Op.CLOSE, 0, 0)}


def test_nobody_overtakes_a_prompt_that_has_no_room_yet() -> None:
    one = scheduler(context=64, kv_rows=64)
    one.add(ask(1, 16, max_tokens=34))
    one.add(ask(2, 16, max_tokens=34))
    one.add(ask(3, 1, max_tokens=1))
    assert set(rows_of(turn(one))) == {1}
    assert one.reserved_rows == 50
    assert one.waiting == 2
    one.cancel(1)
    assert set(rows_of(turn(one))) == {1, 2, 3}


def test_a_reservation_is_capped_by_the_context() -> None:
    one = scheduler(context=64, kv_rows=64)
    first = ask(1, 60, max_tokens=10_000)
    one.add(first)
    turn(one)
    assert one.reserved_rows == 64
    while not one.idle:
        turn(one)
    assert len(first.produced) == 4
    assert first.finish is Finish.LENGTH


def test_too_long_a_prompt_names_both_numbers() -> None:
    one = scheduler(context=64)
    one.add(ask(1, 63))
    with pytest.raises(PromptTooLong, match=r"64 tokens .* context of 64") as caught:
        one.add(ask(2, 64))
    assert (caught.value.prompt_tokens, caught.value.context) == (64, 64)


@pytest.mark.parametrize(
    ("sequence", "field"),
    [(Sequence(5, (), 1), "prompt"), (Sequence(5, (1,), 0), "max_tokens"), (Sequence(3, (1,), 1), "id")],
)
def test_a_bad_sequence_is_refused_by_field(sequence: Sequence, field: str) -> None:
    one = scheduler()
    one.add(ask(3, 1))
    with pytest.raises(ValueError, match=f"^{field}: "):
        one.add(sequence)


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ((0, 8, 40, 64, 256), "parallel"),
        ((4, 0, 40, 64, 256), "chunk"),
        ((4, 8, 0, 64, 256), "max_rows"),
        ((4, 8, 40, 64, 63), "kv_rows"),
    ],
)
def test_impossible_limits_are_refused_by_name(limits: tuple[int, int, int, int, int], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        Scheduler(*limits)
    with pytest.raises(ValueError, match=r"^groups: "):
        Scheduler(4, 8, 40, 64, 256, groups=0)
