"""N-gram guesses: what is guessed, how it is graded, and that memory has a bound."""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import islice

from ropeway.serving.drafting.ngram import GRADES, PRIORS, NgramDrafter, grade_of
from ropeway.serving.sequence import Sequence


def guesses(drafter: NgramDrafter, sequence: Sequence, most: int) -> list[int]:
    drafter.observe(sequence)
    return [guess.token for guess in islice(drafter.propose(sequence), most)]


def sequence(prompt: Items[int], produced: Items[int] = ()) -> Sequence:
    return Sequence(1, tuple(prompt), 100, produced=list(produced))


def test_what_followed_before_is_guessed() -> None:
    assert guesses(NgramDrafter(), sequence([1, 2, 3, 4, 5, 6, 7], [1, 2, 3]), 3) == [4, 5, 6]


def test_the_reply_counts_like_the_prompt_and_is_read_as_it_comes() -> None:
    drafter = NgramDrafter()
    one = sequence([9, 8], [1, 2, 3, 4])
    assert drafter.behind(one) == 6
    assert guesses(drafter, one, 3) == []
    assert drafter.behind(one) == 0
    one.produced += [5, 1, 2, 3]
    assert drafter.behind(one) == 4
    assert guesses(drafter, one, 2) == [4, 5]


def test_short_matches_are_no_matches() -> None:
    assert guesses(NgramDrafter(), sequence([1, 2, 4, 5], [1, 2]), 3) == []


def test_a_period_goes_on() -> None:
    assert guesses(NgramDrafter(), sequence([5, 6, 7, 5, 6, 7]), 7) == [5, 6, 7, 5, 6, 7, 5]


def test_a_longer_match_is_a_better_grade() -> None:
    drafter = NgramDrafter()
    one = sequence([*range(20), *range(3)])
    drafter.observe(one)
    grades = [guess.grade for guess in islice(drafter.propose(one), 15)]
    assert grades == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 4, 4]
    assert grade_of(GRADES[0]) == 0
    assert len(PRIORS) == len(GRADES)
    assert list(PRIORS) == sorted(PRIORS)


def test_sequences_do_not_know_of_each_other() -> None:
    drafter = NgramDrafter()
    drafter.observe(Sequence(1, (1, 2, 3, 4), 9))
    other = Sequence(2, (1, 2, 3), 9)
    assert guesses(drafter, other, 1) == []
    drafter.forget(2)
    assert drafter.behind(other) == 3
    drafter.forget(7)


def test_memory_is_bounded_and_the_latest_text_is_known() -> None:
    drafter = NgramDrafter(limit=64)
    one = sequence(range(1000, 1200))
    drafter.observe(one)
    assert drafter.behind(one) == 0
    for token in range(500):
        one.produced.append(token)
        drafter.observe(one)
        automaton = drafter._texts[1].automaton
        assert len(automaton.text) <= 64
        assert automaton.states <= 2 * 64 + 1
    one.produced += [480, 481, 482]
    assert guesses(drafter, one, 2) == [483, 484]
    one.produced[:] = one.produced[:503]
    early = sequence([*range(100), *range(3)])
    early.id = 2
    assert guesses(drafter, early, 2) == [], "a prompt's beginning is dropped where the whole does not fit"
