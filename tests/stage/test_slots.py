"""The slot table: what a plan asks of a stage, every refusal by name, and that a refusal changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.stage.slots import SlotTable
from ropeway.stage.work import Drop, Keep, Part, Release, Restore, Save
from ropeway.types import Span
from ropeway.wire import CacheAction, CacheOp, ErrorCode, Op, Plan, ProtocolError, Returns, StreamEntry

KEY = bytes(range(16))
OTHER = bytes(16)


def opening(stream: int, rows: int) -> StreamEntry:
    return StreamEntry(stream, Op.OPEN, 0, rows)


def going_on(stream: int, first: int, rows: int, accepted: int, generation: int = 0) -> StreamEntry:
    return StreamEntry(stream, Op.CONTINUE, first, rows, accepted, 0, generation)


def resuming(stream: int, position: int, rows: int = 1, generation: int = 0) -> StreamEntry:
    return StreamEntry(stream, Op.RESUME, position, rows, 0, position, generation)


def closing(stream: int, generation: int = 0, op: Op = Op.CLOSE) -> StreamEntry:
    return StreamEntry(stream, op, generation=generation)


def save(stream: int, key: bytes = KEY) -> CacheOp:
    return CacheOp(CacheAction.SAVE, stream, key)


def restore(stream: int, key: bytes = KEY) -> CacheOp:
    return CacheOp(CacheAction.RESTORE, stream, key)


def drop(key: bytes = KEY) -> CacheOp:
    return CacheOp(CacheAction.DROP, 0, key)


def busy() -> SlotTable:
    """Streams 3 (5 rows, all in its last round) and 7 (2 and 4 rows, generation 1), and a key of 5 rows, in 3 slots."""
    table = SlotTable(3, 20, 40, chunk=8, max_rows=16)
    table.apply(Plan((opening(3, 5), opening(7, 3)), cache=(save(3),)))
    table.apply(Plan((going_on(7, 2, 4, accepted=2),)))
    return table


def test_rows_are_cut_into_parts_with_what_returns() -> None:
    work = SlotTable(3, 20, 40).apply(Plan((opening(1, 3), opening(4, 6), opening(9, 1)), cuts=(2, 7)))
    assert work.before == work.after == ()
    assert work.parts == (
        Part(0, 2, (Span(0, 0, 2),), ()),
        Part(2, 5, (Span(0, 2, 1), Span(1, 0, 4)), (0,)),
        Part(7, 3, (Span(1, 4, 2), Span(2, 0, 1)), (1, 2)),
    )


def test_listed_rows_return() -> None:
    plan = Plan((opening(1, 3), opening(4, 6)), cuts=(4,), returns=Returns.LISTED, listed=(0, 4))
    assert [part.returns for part in SlotTable(3, 20, 40).apply(plan).parts] == [(), (1, 2, 3, 4)]


def test_what_was_not_accepted_is_forgotten_first() -> None:
    table = SlotTable(3, 20, 40)
    table.apply(Plan((opening(1, 5),)))
    assert table.apply(Plan((going_on(1, 5, 4, accepted=5),))).before == ()
    work = table.apply(Plan((going_on(1, 6, 2, accepted=1),)))
    assert work.before == (Keep(0, 6),)
    assert work.parts == (Part(0, 2, (Span(0, 6, 2),), (1,)),)
    assert table.streams[1].generation == 1
    assert table.apply(Plan((going_on(1, 6, 1, accepted=0, generation=1),))).before == (Keep(0, 6),)
    assert table.streams[1].generation == 2


def test_freed_slots_serve_the_same_plan_lowest_first() -> None:
    table = busy()
    table.apply(Plan((opening(9, 1),)))
    work = table.apply(Plan((closing(3), closing(9, op=Op.CANCEL), opening(10, 1), opening(11, 2))))
    assert work.before == (Release(0), Release(2))
    assert work.parts[0].spans == (Span(0, 0, 1), Span(2, 0, 2))
    assert {stream: slot.slot for stream, slot in table.streams.items()} == {7: 1, 10: 0, 11: 2}


def test_an_id_below_the_closed_ones_opens_in_their_slot_too() -> None:
    table = SlotTable(1, 20, 20)
    table.apply(Plan((opening(5, 20),)))
    work = table.apply(Plan((opening(2, 20), closing(5))))
    assert work.before == (Release(0),)
    assert table.streams.keys() == {2}


def test_a_stream_resumes_from_what_was_kept() -> None:
    table = busy()
    work = table.apply(Plan((resuming(8, 5),), cache=(restore(8),)))
    assert work.before == (Restore(2, KEY),)
    assert work.parts == (Part(0, 1, (Span(2, 5, 1),), (0,)),)
    assert table.streams[8].generation == 1
    table.apply(Plan((closing(8, generation=1),)))
    work = table.apply(Plan((resuming(9, 3, generation=4),), cache=(restore(9), drop())))
    assert work.before == (Restore(2, KEY), Keep(2, 3), Drop(KEY))
    assert table.streams[9].generation == 5
    assert table.kept == {}


def test_a_stream_that_ends_is_saved_before_its_slot_goes() -> None:
    table = busy()
    work = table.apply(Plan((closing(7, generation=1), opening(8, 1)), cache=(save(7, OTHER), save(8, b"8" * 16))))
    assert work.before == (Save(1, OTHER), Release(1))
    assert work.after == (Save(1, b"8" * 16),)
    assert table.kept == {KEY: 5, OTHER: 6, b"8" * 16: 1}


def test_a_keep_alive_asks_for_nothing() -> None:
    table = busy()
    work = table.apply(Plan())
    assert (work.before, work.parts, work.after) == ((), (), ())


REFUSED = {
    "closed": (ErrorCode.STREAM_UNKNOWN, Plan((going_on(4, 0, 1, 0),))),
    "never there": (ErrorCode.STREAM_UNKNOWN, Plan((closing(4),))),
    "cancelled twice": (ErrorCode.STREAM_UNKNOWN, Plan((closing(4, op=Op.CANCEL),))),
    "opened twice": (ErrorCode.STREAM_UNKNOWN, Plan((opening(3, 1),))),
    "resumed while open": (ErrorCode.STREAM_UNKNOWN, Plan((resuming(3, 2),), cache=(restore(3),))),
    "saved unknown": (ErrorCode.STREAM_UNKNOWN, Plan(cache=(save(4, OTHER),))),
    "behind": (ErrorCode.STALE_GENERATION, Plan((going_on(7, 6, 1, 4, generation=0),))),
    "ahead": (ErrorCode.STALE_GENERATION, Plan((going_on(3, 5, 1, 5, generation=1),))),
    "closed by a stale one": (ErrorCode.STALE_GENERATION, Plan((closing(7, generation=2),))),
    "accepted too many": (ErrorCode.ACCEPTED_RANGE, Plan((going_on(7, 7, 1, 5, generation=1),))),
    "gap": (ErrorCode.FIRST_POSITION, Plan((going_on(3, 6, 1, 5),))),
    "overlap": (ErrorCode.FIRST_POSITION, Plan((going_on(3, 4, 1, 5),))),
    "first beyond resume": (
        ErrorCode.FIRST_POSITION,
        Plan((StreamEntry(8, Op.RESUME, 4, 1, 0, 3),), cache=(restore(8),)),
    ),
    "resume beyond what is kept": (ErrorCode.RESUME_RANGE, Plan((resuming(8, 6),), cache=(restore(8),))),
    "restored unknown": (ErrorCode.UNKNOWN_KEY, Plan((resuming(8, 1),), cache=(restore(8, OTHER),))),
    "restored what the plan saves": (
        ErrorCode.UNKNOWN_KEY,
        Plan((closing(3), resuming(8, 1)), cache=(save(3, OTHER), restore(8, OTHER))),
    ),
    "dropped unknown": (ErrorCode.UNKNOWN_KEY, Plan(cache=(drop(OTHER),))),
    "dropped twice": (ErrorCode.UNKNOWN_KEY, Plan(cache=(drop(), drop()))),
    "dropped what the plan saves": (ErrorCode.UNKNOWN_KEY, Plan(cache=(save(3, OTHER), drop(OTHER)))),
    "saved twice": (ErrorCode.UNKNOWN_KEY, Plan(cache=(save(7),))),
    "saved twice in a plan": (ErrorCode.UNKNOWN_KEY, Plan(cache=(save(3, OTHER), save(7, OTHER)))),
    "dropped and saved": (ErrorCode.UNKNOWN_KEY, Plan(cache=(drop(), save(3)))),
    "too many streams": (ErrorCode.OVER_CAPACITY, Plan((opening(8, 1), opening(9, 1)))),
    "context": (ErrorCode.OVER_CAPACITY, Plan((going_on(3, 5, 16, 5),), cuts=(8,))),
    "context of a new one": (ErrorCode.OVER_CAPACITY, Plan((opening(8, 21),), cuts=(8, 16))),
    "part": (ErrorCode.OVER_CAPACITY, Plan((opening(8, 9),))),
    "last part": (ErrorCode.OVER_CAPACITY, Plan((opening(8, 10),), cuts=(1,))),
    "round": (ErrorCode.OVER_CAPACITY, Plan((going_on(3, 5, 9, 5), opening(8, 8)), cuts=(8, 16))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_and_nothing_changes(name: str) -> None:
    code, plan = REFUSED[name]
    table = busy()
    streams, kept = table.streams, table.kept
    # Something good comes first, which must not stay either.
    if 3 not in {entry.stream for entry in plan.entries} and not any(op.stream == 3 for op in plan.cache):
        plan = replace(plan, entries=(closing(3), *plan.entries))
        if name == "too many streams":
            plan = replace(plan, entries=(*plan.entries, opening(10, 1)))
    plan.encode()
    with pytest.raises(ProtocolError) as caught:
        table.apply(plan)
    assert caught.value.code is code
    assert (table.streams, table.kept) == (streams, kept)


def test_kv_rows_count_all_streams() -> None:
    table = SlotTable(3, 20, 30)
    table.apply(Plan((opening(1, 20), opening(2, 10))))
    with pytest.raises(ProtocolError, match=r"^over_capacity: .* 31 rows, at most 30"):
        table.apply(Plan((going_on(2, 10, 1, 10),)))
    with pytest.raises(ProtocolError, match=r"^over_capacity: "):
        table.apply(Plan((opening(3, 1),)))
    table.apply(Plan((closing(1), opening(3, 20))))
    table.apply(Plan((going_on(2, 5, 5, accepted=5),)))


def test_errors_give_both_numbers() -> None:
    table = busy()
    with pytest.raises(ProtocolError, match=r"stream 7 .* generation 9, the stage's is 1"):
        table.apply(Plan((going_on(7, 6, 1, 4, generation=9),)))
    with pytest.raises(ProtocolError, match=r"stream 3 .* first 9, the stage is at 5"):
        table.apply(Plan((going_on(3, 9, 1, 5),)))


ENTRY = st.builds(
    StreamEntry,
    st.integers(0, 4),
    st.sampled_from(Op),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 3),
    st.integers(0, 5),
    st.integers(0, 2),
)
CACHE = st.builds(CacheOp, st.sampled_from(CacheAction), st.integers(0, 4), st.sampled_from([KEY, OTHER]))
PLAN = st.builds(Plan, st.lists(ENTRY, max_size=3).map(tuple), cache=st.lists(CACHE, max_size=2).map(tuple))


@given(plans=st.lists(PLAN, max_size=30))
def test_any_plan_is_taken_whole_or_not_at_all(plans: list[Plan]) -> None:
    table = SlotTable(2, 9, 14, chunk=6, max_rows=7)
    for plan in plans:
        try:
            plan.encode()
        except ProtocolError:
            continue  # the decoder would have refused it
        before = table.streams, table.kept
        try:
            work = table.apply(plan)
        except ProtocolError:
            assert (table.streams, table.kept) == before
            continue
        slots = [slot.slot for slot in table.streams.values()]
        assert len(set(slots)) == len(slots) <= 2
        assert all(0 <= slot < 2 for slot in slots)
        assert sum(slot.position for slot in table.streams.values()) <= 14
        assert sum(span.rows for part in work.parts for span in part.spans) == plan.rows <= 7
        assert sum(len(part.returns) for part in work.parts) == plan.returned_count
