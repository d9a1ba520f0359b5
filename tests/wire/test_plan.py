"""A plan's derived numbers, and its rules where the encoder applies them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from ropeway.wire import CacheAction, CacheOp, ErrorCode, Op, Plan, ProtocolError, Returns, StreamEntry
from wire import strategies

E = StreamEntry
KEY = bytes(16)
PROMPT = E(5, Op.OPEN, rows=6)
DECODE = E(2, Op.CONTINUE, 64, 1, 1, generation=3)
CLOSE = E(7, Op.CLOSE, generation=2)
MIXED = (DECODE, PROMPT, CLOSE, E(9, Op.CONTINUE, 11, 2, 1))
RESTORE = CacheOp(CacheAction.RESTORE, 5, KEY)

BROKEN = [
    ("stream_order", Plan((PROMPT, DECODE))),
    ("stream_order", Plan((DECODE, DECODE))),
    ("empty_rows", Plan((E(5, Op.OPEN),))),
    ("empty_rows", Plan((E(5, Op.CONTINUE, 9),))),
    ("empty_rows", Plan((E(5, Op.RESUME, 9, resume=9),), cache=(RESTORE,))),
    ("rows_on_close", Plan((E(5, Op.CLOSE, rows=1),))),
    ("rows_on_close", Plan((E(5, Op.CANCEL, rows=1),))),
    ("first_position", Plan((E(5, Op.OPEN, 1, 1),))),
    ("first_position", Plan((E(5, Op.CANCEL, 1),))),
    ("accepted_range", Plan((E(5, Op.OPEN, 0, 1, 1),))),
    ("accepted_range", Plan((E(5, Op.CLOSE, accepted=1),))),
    ("accepted_range", Plan((E(5, Op.RESUME, 9, 1, 1, 9),), cache=(RESTORE,))),
    ("resume_range", Plan((E(5, Op.OPEN, 0, 1, resume=1),))),
    ("resume_range", Plan((E(5, Op.CONTINUE, 1, 1, resume=1),))),
    ("resume_range", Plan((E(5, Op.CLOSE, resume=1),))),
    ("resume_range", Plan((E(5, Op.RESUME, 9, 1),), cache=(RESTORE,))),
    ("resume_range", Plan((E(5, Op.RESUME, 9, 1, resume=10),), cache=(RESTORE,))),
    ("stale_generation", Plan((E(5, Op.OPEN, 0, 1, generation=1),))),
    ("over_capacity", Plan((E(5, Op.CONTINUE, 0xFFFFFFFF, 1),))),
    ("over_capacity", Plan((E(5, Op.OPEN, rows=0xFFFFFFFF), E(6, Op.OPEN, rows=1)))),
    ("cut_range", Plan((PROMPT,), cuts=(0,))),
    ("cut_range", Plan((PROMPT,), cuts=(6,))),
    ("cut_range", Plan((PROMPT,), cuts=(3, 2))),
    ("cut_range", Plan((CLOSE,), cuts=(0,))),
    ("token_count", Plan((PROMPT,), tokens=(1,) * 5)),
    ("token_count", Plan(tokens=(1,))),
    ("unknown_key", Plan((E(5, Op.RESUME, 9, 1, resume=9),))),
    ("stream_unknown", Plan((PROMPT,), cache=(RESTORE,))),
    ("stream_unknown", Plan((E(5, Op.RESUME, 9, 1, resume=9),), cache=(RESTORE, RESTORE))),
    ("reserved_not_zero", Plan(cache=(CacheOp(CacheAction.DROP, 1, KEY),))),
    ("bad_value", Plan(cache=(CacheOp(CacheAction.SAVE, 1, bytes(15)),))),
    ("bad_value", Plan((PROMPT,), returns=Returns.LISTED)),
    ("bad_value", Plan((PROMPT,), listed=(1,))),
    ("bad_value", Plan((PROMPT,), returns=Returns.LISTED, listed=(7,))),
    ("bad_value", Plan((PROMPT,), returns=Returns.LISTED, listed=(-1,))),
    ("bad_value", Plan((E(1 << 32, Op.OPEN, rows=1),))),
    ("bad_value", Plan((PROMPT,), tokens=(-1,) * 6)),
]


@pytest.mark.parametrize(("label", "plan"), BROKEN)
def test_a_broken_rule_never_becomes_bytes(label: str, plan: Plan) -> None:
    with pytest.raises(ProtocolError) as caught:
        plan.encode()
    assert caught.value.code.label == label
    assert label in str(caught.value)


def test_details_name_both_values() -> None:
    with pytest.raises(ProtocolError) as caught:
        Plan((PROMPT,), cuts=(3, 9)).encode()
    assert caught.value.code is ErrorCode.CUT_RANGE
    assert str(caught.value) == "cut_range: cut 1 is 9, expected more than 3 and less than 6"
    assert caught.value.at == 32 + 28 + 4


def test_parts_are_between_the_cuts() -> None:
    assert Plan(MIXED).rows == 9
    assert Plan(MIXED).part_ranges() == [(0, 9)]
    assert Plan(MIXED, cuts=(4, 8)).part_ranges() == [(0, 4), (4, 8), (8, 9)]
    assert Plan((CLOSE,)).part_ranges() == []
    assert Plan().part_ranges() == []


def test_what_comes_back() -> None:
    # Rows of the round: stream 2 has row 0, stream 5 rows 1..6, stream 9 rows 7 and 8.
    last = Plan(MIXED, cuts=(4,))
    assert last.returned_rows() == [0, 6, 8]
    assert [last.returns_for(index) for index in range(4)] == [1, 1, 0, 1]
    assert last.returned_frames() == [3]
    every = Plan(MIXED, cuts=(4,), returns=Returns.ALL)
    assert every.returned_rows() == list(range(9))
    assert every.returned_frames() == [4, 5]
    some = Plan(MIXED, returns=Returns.LISTED, listed=(0, 2, 0, 2))
    assert some.returned_rows() == [5, 6, 7, 8]
    assert some.returned_count == 4
    assert some.returned_frames() == [4]
    nothing = Plan(MIXED, returns=Returns.LISTED, listed=(0, 0, 0, 0))
    assert nothing.returned_rows() == []
    assert nothing.returned_frames() == []


def test_only_an_empty_plan_is_a_keepalive() -> None:
    assert Plan().is_keepalive
    assert not Plan((CLOSE,)).is_keepalive
    assert not Plan(cache=(CacheOp(CacheAction.DROP, 0, KEY),)).is_keepalive


@settings(deadline=None)
@given(strategies.plans())
def test_derived_numbers_agree(plan: Plan) -> None:
    parts = plan.part_ranges()
    assert sum(stop - start for start, stop in parts) == plan.rows
    assert all(start < stop for start, stop in parts)
    returned = plan.returned_rows()
    assert returned == sorted(set(returned))
    assert len(returned) == plan.returned_count == sum(plan.returned_frames())
    assert all(0 <= row < plan.rows for row in returned)
