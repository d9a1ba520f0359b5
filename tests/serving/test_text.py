"""Text out of pieces: any cut of the bytes or of the text gives the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving.text import Matched, StopMatcher, StreamDecoder


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(
    data=st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode("utf-8", "ignore"))),
    cuts=st.lists(st.integers(0, 100), max_size=20),
)
def test_any_cut_of_the_bytes_gives_the_same_text(data: bytes, cuts: list[int]) -> None:
    decoder = StreamDecoder()
    text = "".join(decoder.push(piece) for piece in pieces_of(data, cuts))
    assert text + decoder.flush() == data.decode("utf-8", "replace")


def test_a_character_comes_when_its_last_byte_does() -> None:
    decoder = StreamDecoder()
    assert [decoder.push(bytes([byte])) for byte in "aé🚡".encode()] == ["a", "", "é", "", "", "", "🚡"]
    assert decoder.flush() == ""


def test_what_never_becomes_a_character_is_replaced() -> None:
    decoder = StreamDecoder()
    assert decoder.push(b"\xf0\x9f") == ""
    assert decoder.push(b"x\xff") == "\ufffdx\ufffd"
    assert decoder.push(b"\xe2\x82") == ""
    assert decoder.flush() == "\ufffd"


def by_the_definition(text: str, stops: list[str]) -> Matched:
    """Character by character: the first stop that is complete, the longest of those that end there."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return Matched(text[: end - len(longest)], longest)
    return Matched(text)


def holdable(text: str, stops: list[str]) -> str:
    """The longest end of the text that a stop string begins with."""
    ends = [text[start:] for start in range(len(text))]
    return next((end for end in ends if any(stop.startswith(end) for stop in stops)), "")


@given(
    pieces=st.lists(st.text("abc", max_size=5), max_size=8),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), max_size=4),
)
def test_stops_against_brute_force(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    expected = by_the_definition(text, stops)
    matcher = StopMatcher(stops)
    shown = fed = ""
    for piece in pieces:
        fed += piece
        got = matcher.push(piece)
        shown += got.text
        assert expected.text.startswith(shown), "what a stop string has taken was shown"
        if got.stop:
            assert Matched(shown, got.stop) == expected
            assert matcher.flush() == ""
            return
        assert shown + matcher.held == fed
        assert matcher.held == holdable(fed, stops), "held back for no reason"
    assert not expected.stop
    assert shown + matcher.flush() == text


def test_stop_across_token_borders() -> None:
    matcher = StopMatcher(["</tool>", "\nUser:"])
    assert matcher.push("Hi\nUs") == Matched("Hi")
    assert matcher.push("ual <") == Matched("\nUsual ")
    assert matcher.push("/to") == Matched("")
    assert matcher.push("ol>!") == Matched("", "</tool>")


def test_without_stops_nothing_is_held() -> None:
    matcher = StopMatcher([])
    assert matcher.push("abc") == Matched("abc")
    assert matcher.flush() == ""


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^stop: "):
        StopMatcher(["a", ""])
