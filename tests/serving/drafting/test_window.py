"""The window on a simulated clock: it finds what pays, and never costs more than a little where nothing does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ropeway.serving.drafting.drafter import Guess
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.drafting.window import MOST, Window
from ropeway.serving.sequence import Sequence
from serving.drafting.replay import CARDS, FAR, LONE_CPU, Clock, Line, Replay, edited, prose, repeated

LINES = [pytest.param(line, id=name) for name, line in (("lone", LONE_CPU), ("far", FAR), ("cards", CARDS))]


@pytest.mark.parametrize("words", [4, 8, 16, 40, 400])
@pytest.mark.parametrize("line", LINES)
def test_prose_is_not_hurt(line: Line, words: int) -> None:
    """Few words make many matches by chance, whose guesses are mostly wrong."""
    text = [(prose(200, 1, words), prose(400, 2, words))]
    plain, drafted = Replay.plain(line).run(text), Replay.ngram(line)
    for _ in range(3):
        assert drafted.run(text) > 0.985 * plain


@pytest.mark.parametrize(("line", "least"), [(LONE_CPU, 1.5), (FAR, 5.0), (CARDS, 14.0)], ids=["lone", "far", "cards"])
def test_a_text_that_is_repeated(line: Line, least: float) -> None:
    """Against the best that any fixed number of guesses could do: 31 right ones a round on a line where they are all
    worth it; on a lone CPU a row costs more than half a round."""
    text = [repeated(400, 3)]
    assert Replay.ngram(line).run(text) > least * Replay.plain(line).run(text)


@pytest.mark.parametrize(("line", "least"), [(LONE_CPU, 1.1), (FAR, 1.8), (CARDS, 2.6)], ids=["lone", "far", "cards"])
@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_a_text_that_is_edited(line: Line, least: float, noise: float) -> None:
    text = [edited(400, 4)]
    noisy = Line(line.base_s, line.row_s, noise)
    drafted = Replay.ngram(noisy)
    plain = Replay.plain(line).run(text)
    for _ in range(2):
        assert drafted.run(text) > least * plain


@pytest.mark.parametrize("line", LINES)
def test_streams_that_repeat_beside_streams_that_do_not(line: Line) -> None:
    text = [repeated(200, seed) for seed in range(2)] + [
        (prose(100, seed, 16), prose(200, 9 + seed, 16)) for seed in (1, 2)
    ]
    plain, drafted = Replay.plain(line, 4), Replay.ngram(line, 4)
    plain.run(text)
    drafted.run(text)
    assert drafted.clock.now < 1.015 * plain.clock.now


class Stubborn:
    """A drafter that is sure of itself whatever happens: `right` says where it really is."""

    priors = (0.95,)

    def __init__(self, reply: list[int], right: list[bool], clock: Clock, guess_s: float = 0.0) -> None:
        self._reply, self._right = reply, right
        self._clock, self._guess_s = clock, guess_s

    def behind(self, sequence: Sequence) -> int:
        return 0

    def observe(self, sequence: Sequence) -> None:
        raise AssertionError("it is never behind")

    def propose(self, sequence: Sequence) -> Iterator[Guess]:
        for at in range(len(sequence.produced), len(self._reply)):
            self._clock.now += self._guess_s
            yield Guess(self._reply[at] if self._right[at] else -1, 0)

    def ahead(self, sequence: Sequence) -> bool:
        return False

    def forget(self, sequence_id: int) -> None: ...
    def close(self) -> None: ...


def stubborn(line: Line, right: list[bool], guess_s: float = 0.0) -> tuple[Replay, list[int]]:
    reply, clock = prose(len(right), 7), Clock()
    return Replay(line, Drafting(Stubborn(reply, right, clock, guess_s), clock), clock), reply


@pytest.mark.parametrize("line", LINES)
def test_what_is_always_wrong_costs_little_however_sure_it_seems(line: Line) -> None:
    replay, reply = stubborn(line, [False] * 500)
    plain = Replay.plain(line)
    plain.run([([1, 2], reply)])
    replay.run([([1, 2], reply)])
    assert replay.clock.now < 1.025 * plain.clock.now


@pytest.mark.parametrize("line", LINES)
def test_what_becomes_right_is_noticed(line: Line) -> None:
    wrong = 300
    replay, reply = stubborn(line, [False] * wrong + [True] * 400)
    replay.run([([1, 2], reply)])
    at, turn = 1, 0
    while at < wrong + 100:
        at += 1 + replay.turns[turn][1]
        turn += 1
    late = [right for _, right in replay.turns[turn:]]
    assert sum(late) / len(late) > 0.8, "guesses right a round, most rounds with one, a hundred tokens later"


@pytest.mark.parametrize("line", LINES)
def test_what_turns_wrong_is_dropped(line: Line) -> None:
    replay, reply = stubborn(line, [True] * 100 + [False] * 300)
    replay.run([([1, 2], reply)])
    at, turn = 1, 0
    while at < 130:
        at += 1 + replay.turns[turn][1]
        turn += 1
    wasted = sum(guesses for guesses, _ in replay.turns[turn:])
    assert wasted * line.row_s < 0.03 * 270 * (line.base_s + line.row_s)


def test_a_drafter_that_takes_longer_than_it_saves_is_left_alone() -> None:
    """It is right every time, but a guess takes as long as a round."""
    replay, reply = stubborn(LONE_CPU, [True] * 300, guess_s=0.0145)
    plain = Replay.plain(LONE_CPU)
    plain.run([([1, 2], reply)])
    replay.run([([1, 2], reply)])
    assert replay.clock.now < 1.03 * plain.clock.now
    assert replay.drafting is not None
    assert replay.drafting.figures.guesses < 20


def test_a_drafter_that_is_quick_and_right_is_used_to_the_full() -> None:
    replay, reply = stubborn(FAR, [True] * 400, guess_s=0.001)
    plain = Replay.plain(FAR)
    plain.run([([1, 2], reply)])
    replay.run([([1, 2], reply)])
    assert replay.clock.now < plain.clock.now / 4.5


def test_nothing_is_proposed_before_a_round_has_been_measured_nor_more_than_the_most() -> None:
    window = Window((1.0,))
    assert window.choice(1) is None
    assert window.hopeful
    for _ in range(30):
        window.landed(1, 0.1, 1)
        window.landed(9, 0.1, 1)
    choice = window.choice(1)
    assert choice is not None
    assert sum(choice.take(0) for _ in range(100)) == len(choice.grades) == MOST
    assert not choice.open
