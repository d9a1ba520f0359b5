"""Cutting a batch into graphs: each row once, in known places, and by the same rule whoever cuts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ropeway.engines.base import Span
from ropeway.engines.llamacpp.pieces import Piece, cut_batch


def test_one_stream_is_one_piece() -> None:
    (piece,) = cut_batch([Span(3, 10, 5)], None)
    assert piece == Piece((Span(3, 10, 5),), range(5), None, None)
    assert piece.whole


def test_decodes_of_neighbouring_slots_are_one_piece() -> None:
    spans = [Span(0, 7, 1), Span(1, 3, 1), Span(2, 9, 1)]
    assert cut_batch(spans, None) == [Piece(tuple(spans), range(3), None, None)]


def test_a_gap_between_slots_cuts() -> None:
    spans = [Span(0, 7, 1), Span(2, 9, 1), Span(3, 1, 1)]
    assert [(piece.spans, piece.rows) for piece in cut_batch(spans, None)] == [
        ((spans[0],), range(1)),
        ((spans[1], spans[2]), range(1, 3)),
    ]


def test_other_row_counts_cut_and_the_shortest_comes_first() -> None:
    spans = [Span(0, 0, 3), Span(1, 7, 1), Span(2, 0, 3)]
    pieces = cut_batch(spans, [2, 3, 6])
    assert [piece.spans for piece in pieces] == [(spans[1],), (spans[0],), (spans[2],)]
    assert [(piece.rows, piece.wanted, piece.places) for piece in pieces] == [
        (range(3, 4), (0,), (1,)),
        (range(3), (2,), (0,)),
        (range(4, 7), (2,), (2,)),
    ]


def test_rows_that_do_not_stand_together() -> None:
    """Slots in another order than the entries: the piece goes by slots, its rows by the batch."""
    spans = [Span(1, 0, 2), Span(0, 5, 2)]
    (piece,) = cut_batch(spans, [1, 2])
    assert piece == Piece((spans[1], spans[0]), (2, 3, 0, 1), (0, 3), (1, 0))
    assert not piece.whole


def test_nothing_wanted_is_not_everything() -> None:
    (piece,) = cut_batch([Span(0, 0, 4)], [])
    assert (piece.wanted, piece.places) == ((), ())
    assert cut_batch([], None) == []


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Span], list[int] | None]:
    slots = draw(st.lists(st.integers(0, 7), unique=True, max_size=6))
    spans = [Span(slot, draw(st.integers(0, 9)), draw(st.integers(1, 4))) for slot in slots]
    count = sum(span.rows for span in spans)
    rows = st.lists(st.integers(0, count - 1), unique=True).map(sorted) if count else st.just([])
    return spans, draw(st.none() | rows)


@given(batches())
def test_every_row_is_in_one_piece_and_its_place_is_known(batch: tuple[list[Span], list[int] | None]) -> None:
    spans, wanted = batch
    owner = [(span, row) for span in spans for row in range(span.rows)]
    pieces = cut_batch(spans, wanted)
    assert sorted(row for piece in pieces for row in piece.rows) == list(range(len(owner)))
    assert sorted(span.slot for piece in pieces for span in piece.spans) == sorted(span.slot for span in spans)
    placed: dict[int, int] = {}
    for piece in pieces:
        assert len({span.rows for span in piece.spans}) == 1
        assert all(a.slot + 1 == b.slot for a, b in pairwise(piece.spans))
        assert [owner[row] for row in piece.rows] == [(span, row) for span in piece.spans for row in range(span.rows)]
        if wanted is None:
            assert piece.wanted is None
            assert piece.places is None
            continue
        assert piece.wanted is not None
        assert piece.places is not None
        assert list(piece.wanted) == sorted(piece.wanted)
        placed |= dict(zip(piece.places, (piece.rows[local] for local in piece.wanted), strict=True))
    assert wanted is None or [placed[place] for place in range(len(wanted))] == wanted
    for one, other in pairwise(pieces):
        assert (one.spans[0].rows, one.spans[-1].slot) < (other.spans[0].rows, other.spans[0].slot)


@given(batches())
def test_a_piece_is_never_cut_further(batch: tuple[list[Span], list[int] | None]) -> None:
    """What is one piece stays one when it is the whole batch, so that a stage and the whole model agree."""
    for piece in cut_batch(batch[0], None):
        assert [again.spans for again in cut_batch(piece.spans, None)] == [piece.spans]
