"""Rounds under way together, drafts, wanted rows and kept prefixes, one decision a test."""

from __future__ import annotations

from collections.abc import Sequence as Items

import pytest

from ropeway.serving.rounds import Scheduled
from ropeway.serving.scheduler import Scheduler
from ropeway.serving.sequence import Sequence
from ropeway.serving.slots import Prefix, Soon
from ropeway.stage.slots import SlotTable
from ropeway.wire import CacheAction, CacheOp, Op, Returns
from serving.turns import ask, planned, rows_of, scheduler, turn


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


def test_a_group_is_a_run_of_neighbouring_slots_however_its_streams_came() -> None:
    one = scheduler(parallel=8, groups=2, kv_rows=512)
    table = SlotTable(8, 64, 512)
    back: list[Scheduled] = []

    def turn_round() -> Scheduled:
        """Send what may be sent, take the oldest round back; gives it."""
        while (scheduled := one.next_plan()) is not None:
            table.apply(scheduled.plan)
            back.append(scheduled)
        oldest = back.pop(0)
        one.commit(oldest, {w.sequence.id: [7] for w in oldest.wanted if w.sequence.finish is None})
        return oldest

    for number in range(8):
        one.add(ask(number, 1, max_tokens=3 if number in (2, 5) else 40))
        turn_round()
    for number in (8, 9):
        one.add(ask(number, 1, max_tokens=40))
    for _ in range(24):
        turn_round()
    for _ in range(4):
        scheduled = turn_round()
        slots = sorted(table.streams[w.sequence.id].slot for w in scheduled.wanted)
        assert slots in ([0, 1, 2, 3], [4, 5, 6, 7])


def test_with_groups_prompts_run_between_the_rounds_of_decodes_one_part_for_each() -> None:
    one = scheduler(parallel=4, groups=2)
    for number in range(2):
        one.add(ask(number, 1, max_tokens=20))
    turn(one)
    one.add(ask(2, 40, max_tokens=4))
    first, second, part = planned(one), planned(one), planned(one)
    assert [[entry.rows for entry in scheduled.plan.entries] for scheduled in (first, second, part)] == [[1], [1], [8]]
    assert one.next_plan() is None, "another part would hold up the decodes that come back before it"
    one.commit(first, {0: [7]})
    again = planned(one)
    assert [wanted.sequence.id for wanted in again.wanted] == [0]
    assert one.next_plan() is None
    one.commit(second, {1: [7]})
    assert [wanted.sequence.id for wanted in planned(one).wanted] == [1]
    one.commit(part, {})
    assert [entry.rows for entry in planned(one).plan.entries] == [8]


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
    first = ask(1, 15)
    one.add(first)
    scheduled = turn(one)
    entry = scheduled.plan.entries[0]
    assert (entry.op, entry.first, entry.resume, entry.rows) == (Op.RESUME, 5, 5, 10)
    assert scheduled.plan.cuts == (3,)
    assert scheduled.plan.cache == (CacheOp(CacheAction.RESTORE, 1, key),)
    assert scheduled.tokens == tuple(range(5, 15))
    assert first.cached_rows == 5
    assert planned(one).plan.entries[0].generation == 1


def test_a_prompt_waits_for_a_state_that_is_being_kept_while_a_round_is_to_come() -> None:
    found: list[Prefix | Soon] = [Soon(None)]
    one = Scheduler(1, 8, 40, 64, 64, groups=2, lookup=lambda sequence: found[-1] if sequence.id else None)
    one.add(ask(0, 3, max_tokens=1))
    one.add(ask(1, 12, max_tokens=2))
    turn(one)
    closing = planned(one)
    assert rows_of(closing) == {0: (Op.CLOSE, 0, 0)}, "it was the one that leaves whose state is kept"
    assert one.next_plan() is None, "a round is under way, so there will be another"
    one.commit(closing, {})
    found.append(Prefix(bytes(16), 8))
    assert rows_of(turn(one)) == {1: (Op.RESUME, 8, 4)}


def test_a_prompt_does_not_wait_where_nothing_is_to_come() -> None:
    for found, entry in ((Soon(None), (Op.OPEN, 0, 12)), (Soon(Prefix(bytes(16), 8)), (Op.RESUME, 8, 4))):
        one = Scheduler(4, 8, 40, 64, 256, lookup=lambda _, found=found: found)  # type: ignore[misc]
        one.add(ask(1, 12))
        assert rows_of(turn(one)) == {1: entry}


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
