"""Single decisions of the scheduler, one a test."""

from __future__ import annotations

from collections.abc import Sequence as Items

import pytest

from ropeway.serving.prompts import PromptTooLong
from ropeway.serving.rounds import Scheduled
from ropeway.serving.scheduler import Scheduler
from ropeway.serving.sequence import Finish, Sequence, State
from ropeway.serving.slots import Prefix
from ropeway.wire import CacheAction, CacheOp, Op, Returns


def scheduler(
    parallel: int = 4, chunk: int = 8, max_rows: int = 40, context: int = 64, kv_rows: int = 256, groups: int = 1
) -> Scheduler:
    return Scheduler(parallel, chunk, max_rows, context, kv_rows, groups=groups)


def ask(number: int, size: int, max_tokens: int = 10) -> Sequence:
    return Sequence(number, tuple(range(size)), max_tokens)


def planned(one: Scheduler) -> Scheduled:
    scheduled = one.next_plan()
    assert scheduled is not None
    return scheduled


def turn(one: Scheduler) -> Scheduled:
    """A round, and token 7 for everyone who waits for one."""
    scheduled = planned(one)
    one.commit(scheduled, {wanted.sequence.id: [7] for wanted in scheduled.wanted})
    return scheduled


def rows_of(scheduled: Scheduled) -> dict[int, tuple[Op, int, int]]:
    return {entry.stream: (entry.op, entry.first, entry.rows) for entry in scheduled.plan.entries}


def test_a_lone_prompt_takes_one_round_of_many_parts() -> None:
    one = scheduler()
    one.add(ask(1, 30))
    scheduled = turn(one)
    assert rows_of(scheduled) == {1: (Op.OPEN, 0, 30)}
    assert scheduled.plan.cuts == (8, 16, 24)
    assert scheduled.plan.returns is Returns.LAST
    assert scheduled.tokens == tuple(range(30))
    assert [(wanted.row, wanted.rows, wanted.position, wanted.sample) for wanted in scheduled.wanted] == [
        (0, 1, 29, True)
    ]
    assert turn(one).tokens == (7,)


def test_a_prompt_beyond_a_round_goes_on_in_the_next() -> None:
    one = scheduler(max_rows=20)
    one.add(ask(1, 30))
    first, second = turn(one), turn(one)
    assert rows_of(first) == {1: (Op.OPEN, 0, 16)}
    assert first.plan.returned_count == 0
    assert first.wanted == ()
    assert rows_of(second) == {1: (Op.CONTINUE, 16, 14)}
    assert second.plan.entries[0].accepted == 16
    assert second.plan.cuts == (8,)


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
    one.add(ask(1, 20, max_tokens=30))
    one.add(ask(2, 20, max_tokens=30))
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
    assert (caught.value.prompt, caught.value.context) == (64, 64)


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


def test_groups_share_the_streams_and_a_lone_one_is_not_held_up() -> None:
    one = scheduler(parallel=8, groups=2)
    for number in range(7):
        one.add(ask(number, 1))
    turn(one)
    first, second = planned(one), planned(one)
    assert sorted(map(len, (first.wanted, second.wanted))) == [3, 4]
    assert not {w.sequence.id for w in first.wanted} & {w.sequence.id for w in second.wanted}
    assert one.next_plan() is None
    one.commit(first, {wanted.sequence.id: [7] for wanted in first.wanted})
    assert {w.sequence.id for w in planned(one).wanted} == {w.sequence.id for w in first.wanted}


def test_with_groups_a_long_prompt_fills_the_ring() -> None:
    one = scheduler(max_rows=20, groups=3)
    one.add(ask(1, 60, max_tokens=4))
    rounds = [planned(one), planned(one), planned(one)]
    assert [(entry.first, entry.rows, entry.accepted) for r in rounds for entry in r.plan.entries] == [
        (0, 16, 0),
        (16, 16, 16),
        (32, 16, 16),
    ]
    for scheduled in rounds:
        one.commit(scheduled, {})
    assert rows_of(turn(one)) == {1: (Op.CONTINUE, 48, 12)}


def test_drafts_are_verified_and_rolled_back() -> None:
    one = Scheduler(4, 8, 40, 64, 256, propose=lambda _, most: [1, 2, 3][:most])
    first = ask(1, 3, max_tokens=9)
    one.add(first)
    turn(one)
    verify = planned(one)
    assert verify.tokens == (7, 1, 2, 3)
    assert verify.plan.returns is Returns.ALL
    assert (verify.wanted[0].rows, verify.wanted[0].drafts) == (4, (1, 2, 3))
    one.commit(verify, {1: [1, 9]})
    assert first.produced == [7, 1, 9]
    entry = planned(one).plan.entries[0]
    assert (entry.first, entry.accepted, entry.generation, entry.rows) == (5, 2, 0, 4)
    assert one.next_plan() is None


def test_the_generation_follows_a_roll_back() -> None:
    one = Scheduler(4, 8, 40, 64, 256, propose=lambda _, most: [1, 2, 3][:most])
    one.add(ask(1, 3, max_tokens=12))
    turn(one)
    entries = []
    for chosen in ([7], [1, 7], [1, 2, 3, 7], [1, 2, 3, 7]):
        scheduled = planned(one)
        entries.append(scheduled.plan.entries[0])
        one.commit(scheduled, {1: chosen})
    closing = planned(one).plan.entries[0]
    assert [entry.generation for entry in [*entries, closing]] == [0, 0, 1, 2, 2]
    assert [entry.accepted for entry in entries] == [3, 1, 2, 4]
    assert closing.op is Op.CLOSE


def test_drafts_never_pass_the_limits() -> None:
    asked: list[int] = []

    def propose(sequence: Sequence, most: int) -> Items[int]:
        asked.append(most)
        return [1] * (most + 5)

    one = Scheduler(2, 4, 10, 64, 128, propose=propose)
    one.add(ask(1, 2, max_tokens=3))
    turn(one)
    assert planned(one).wanted[0].drafts == (1,)
    assert asked == [1]


def test_every_row_of_a_prompt_may_come_back() -> None:
    one = scheduler(max_rows=20)
    one.add(Sequence(1, tuple(range(30)), 1, every_row=True))
    first, second = turn(one), turn(one)
    assert first.plan.returns is second.plan.returns is Returns.ALL
    assert [(w.rows, w.position, w.sample) for r in (first, second) for w in r.wanted] == [
        (16, 0, False),
        (14, 16, True),
    ]


def test_token_ids_go_along_where_stages_read_them() -> None:
    one = Scheduler(4, 8, 40, 64, 256, send_tokens=True)
    one.add(ask(1, 9))
    scheduled = turn(one)
    assert scheduled.plan.tokens == scheduled.tokens == tuple(range(9))


def test_a_kept_prefix_is_restored_and_its_cuts_stay() -> None:
    key = bytes(range(16))
    one = Scheduler(4, 8, 40, 64, 256, lookup=lambda sequence: Prefix(key, 5))
    first = ask(1, 20)
    one.add(first)
    scheduled = turn(one)
    entry = scheduled.plan.entries[0]
    assert (entry.op, entry.first, entry.resume, entry.rows) == (Op.RESUME, 5, 5, 15)
    assert scheduled.plan.cuts == (3, 11)
    assert scheduled.plan.cache == (CacheOp(CacheAction.RESTORE, 1, key),)
    assert scheduled.tokens == tuple(range(5, 20))
    assert first.cached_rows == 5
    assert planned(one).plan.entries[0].generation == 1


def test_a_restored_prompt_keeps_its_cuts_even_where_two_pieces_would_fit_a_part() -> None:
    one = Scheduler(4, 8, 40, 64, 256, lookup=lambda sequence: Prefix(bytes(16), 5) if sequence.id else None)
    one.add(ask(1, 12))
    assert turn(one).plan.cuts == (3,)
    one.add(ask(2, 12))
    beside = turn(one)
    assert rows_of(beside) == {1: (Op.CONTINUE, 12, 1), 2: (Op.RESUME, 5, 3)}
    assert beside.plan.cuts == (1,)


def test_a_prompt_whose_rows_are_all_wanted_takes_nothing_from_the_cache() -> None:
    one = Scheduler(4, 8, 40, 64, 256, lookup=lambda sequence: Prefix(bytes(16), 5))
    one.add(Sequence(1, tuple(range(12)), 3, every_row=True))
    assert rows_of(turn(one)) == {1: (Op.OPEN, 0, 12)}


def test_a_save_waits_for_its_streams_next_entry() -> None:
    key = bytes(16)
    one = scheduler(groups=2)
    one.add(ask(1, 3, max_tokens=2))
    turn(one)
    under_way = planned(one)
    one.cache(CacheOp(CacheAction.SAVE, 1, key))
    one.add(ask(2, 3))
    assert planned(one).plan.cache == ()
    one.commit(under_way, {1: [7]})
    closing = planned(one)
    assert closing.plan.entries[0].op is Op.CLOSE
    assert closing.plan.cache == (CacheOp(CacheAction.SAVE, 1, key),)
    with pytest.raises(ValueError, match=r"^stream: 1 "):
        one.cache(CacheOp(CacheAction.SAVE, 1, key))
