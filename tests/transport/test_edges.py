"""Which frames a plan sends over an edge."""

from __future__ import annotations

from ropeway.transport.edges import frames_ahead, frames_back
from ropeway.types import SamplerAt
from ropeway.wire import Kind, Op, Plan, Returns, StreamEntry, Token, Tokens, decode_header
from ropeway.wire.frames import Header

TWO = (StreamEntry(1, Op.OPEN, rows=5), StreamEntry(2, Op.CONTINUE, first=3, rows=1, accepted=1))


def test_ahead_one_frame_a_part() -> None:
    frames = frames_ahead(7, Plan(TWO, cuts=(2, 4)), 100)
    assert [(f.part, f.rows, f.payload_bytes, f.frame_bytes) for f in frames] == [
        (0, 2, 200, 232),
        (1, 2, 200, 232),
        (2, 2, 200, 232),
    ]
    assert decode_header(frames[1].header) == Header(Kind.ROWS, 7, 2, 1, 200)


def test_back_the_rows_that_return_in_one_frame() -> None:
    (frame,) = frames_back(7, Plan(TWO, cuts=(2, 4)), 100, SamplerAt.FIRST)
    assert (frame.kind, frame.part, frame.rows, frame.payload_bytes) == (Kind.ROWS, 0, 2, 200)
    (frame,) = frames_back(7, Plan(TWO, cuts=(2,), returns=Returns.LISTED, listed=(3, 0)), 100, SamplerAt.FIRST)
    assert (frame.part, frame.rows) == (0, 3)


def test_back_every_row_in_the_rounds_parts() -> None:
    frames = frames_back(7, Plan(TWO, cuts=(4,), returns=Returns.ALL), 100, SamplerAt.FIRST)
    assert [(f.part, f.rows) for f in frames] == [(0, 4), (1, 2)]


def test_back_nothing() -> None:
    plan = Plan(TWO, returns=Returns.LISTED, listed=(0, 0))
    assert frames_back(7, plan, 100, SamplerAt.FIRST) == []
    assert frames_back(7, plan, 100, SamplerAt.LAST) == []
    assert frames_ahead(7, Plan((StreamEntry(1, Op.CLOSE),)), 100) == []


def test_back_tokens_in_place_of_rows() -> None:
    (frame,) = frames_back(7, Plan(TWO), 100, SamplerAt.LAST)
    tokens = Tokens((Token(1, 5, 5, False), Token(2, 6, 4, True)))
    assert frame.kind is Kind.TOKENS
    assert frame.payload_bytes == len(tokens.encode())
    assert decode_header(frame.header) == Header(Kind.TOKENS, 7, 0, 0, frame.payload_bytes)
