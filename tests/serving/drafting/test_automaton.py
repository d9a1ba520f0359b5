"""The automaton against a search by hand, and that it stays small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving.drafting.automaton import Match, SuffixAutomaton


def longest_repeated_suffix(text: list[int]) -> int:
    for length in range(len(text) - 1, 0, -1):
        if any(text[at : at + length] == text[-length:] for at in range(len(text) - length)):
            return length
    return 0


@given(st.integers(1, 5).flatmap(lambda most: st.lists(st.integers(0, most), min_size=1, max_size=50)))
def test_the_longest_suffix_that_occurred_before(text: list[int]) -> None:
    automaton = SuffixAutomaton()
    for index, token in enumerate(text, 1):
        automaton.extend(token)
        seen, match = text[:index], automaton.match
        assert match.length == longest_repeated_suffix(seen)
        if match.length:
            assert match.after < index
            assert seen[match.after - match.length : match.after] == seen[-match.length :]
    assert list(automaton.text) == text
    assert automaton.states <= 2 * len(text) + 1


def test_the_latest_occurrence_is_the_one_that_is_named() -> None:
    automaton = SuffixAutomaton()
    for token in (1, 2, 3, 7, 1, 2, 3, 8, 9, 1, 2, 3):
        automaton.extend(token)
    assert automaton.match == Match(3, 7)


def test_a_text_of_one_token_costs_no_more_than_another() -> None:
    """Its suffix links are as long a chain as can be."""
    automaton = SuffixAutomaton()
    for _ in range(20_000):
        automaton.extend(7)
    assert automaton.match == Match(19_999, 19_999)
    assert automaton.states == 20_001
