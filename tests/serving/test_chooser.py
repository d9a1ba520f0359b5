"""What a request asks for on the way from logits to tokens: bias, penalties, grammar, log-probabilities, drafts."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.engines.base import Logits
from ropeway.serving import sampler
from ropeway.serving.chooser import History, Job, JobChooser, logprob
from ropeway.serving.rounds import Wanted
from ropeway.serving.sequence import SamplingParams, Sequence
from ropeway.serving.service import GenerateRequest, Penalties

SIZE = 16


def job(request: GenerateRequest, number: int = 0) -> Job:
    sequence = Sequence(number, request.prompt, request.max_tokens, request.params, request.stop_ids)
    return Job(request, sequence, lambda _: None, 0)


def request(**changes: Any) -> GenerateRequest:
    return replace(GenerateRequest((1, 2, 3), 8), **changes)


def row(*best: int) -> npt.NDArray[np.float32]:
    """Logits that like these tokens, the first one most, and the others in the order of their ids a little."""
    values = np.arange(SIZE, dtype=np.float32) * np.float32(-0.01)
    for place, token in enumerate(best):
        values[token] = 5 - place
    return values


def choose(chooser: JobChooser, one: Job, *rows: npt.NDArray[np.float32], drafts: Items[int] = ()) -> list[int]:
    """One round's tokens, and commit them."""
    chooser.jobs[one.sequence.id] = one
    logits: Logits = np.stack(rows)
    wanted = Wanted(one.sequence, 0, len(rows), 0, True, tuple(drafts))
    chosen = list(chooser.choose(wanted, logits))
    one.sequence.produced += chosen
    return chosen


def test_the_likeliest_token_unless_asked_otherwise() -> None:
    assert choose(JobChooser(), job(request()), row(7)) == [7]


def test_bias_and_penalties_move_the_choice() -> None:
    chooser = JobChooser()
    assert choose(chooser, job(request(logit_bias={4: 100.0})), row(7)) == [4]
    # 3 is in the prompt: 5 / 2 = 2.5 is less than what 9 has, 4.
    assert choose(chooser, job(request(penalties=Penalties(repetition=2.0))), row(3, 9)) == [9]
    frequent = job(request(penalties=Penalties(frequency=0.6)))
    # 5, then 4.4, then 3.8 against 4.
    assert [choose(chooser, frequent, row(7, 8)) for _ in range(3)] == [[7], [7], [8]]
    present = job(request(penalties=Penalties(presence=0.6)))
    assert [choose(chooser, present, row(7, 8)) for _ in range(4)] == [[7], [7], [7], [7]]
    present = job(request(penalties=Penalties(presence=1.5)))
    assert [choose(chooser, present, row(7, 8)) for _ in range(2)] == [[7], [8]]


@given(
    prompt=st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=80),
    reply=st.lists(st.integers(0, SIZE - 1), max_size=300),
    before=st.integers(0, 300),
)
def test_a_history_is_what_was_seen(prompt: list[int], reply: list[int], before: int) -> None:
    history = History(prompt, reply[:before])
    for token in reply[before:]:
        history.push(token)
    assert history.reply.tolist() == reply
    assert Counter(history.seen.tolist()) == Counter({*prompt, *reply})


class Odd:
    """A grammar that allows odd tokens, and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def mask(self) -> npt.NDArray[np.bool_]:
        allowed: npt.NDArray[np.bool_] = np.arange(SIZE) % 2 == 1
        return allowed

    def advance(self, token: int) -> None:
        self.told.append(token)


def test_a_grammar_masks_and_follows() -> None:
    grammar = Odd()
    one = job(request(constraint=grammar))
    chooser = JobChooser()
    assert [choose(chooser, one, row(8, 5)), choose(chooser, one, row(2, 4, 3))] == [[5], [3]]
    assert grammar.told == [5, 3]


def test_drafts_are_taken_as_far_as_the_request_would_have_chosen_them() -> None:
    chooser = JobChooser()
    rows = row(5), row(6), row(7)
    assert choose(chooser, job(request()), *rows, drafts=(5, 6)) == [5, 6, 7]
    assert choose(chooser, job(request()), *rows, drafts=(5, 9)) == [5, 6]
    assert choose(chooser, job(request()), *rows, drafts=(9, 6)) == [5]
    assert choose(chooser, job(request(stop_ids=frozenset({5}))), *rows, drafts=(5, 6)) == [5]


def test_drafts_are_judged_as_if_they_had_been_chosen_one_by_one() -> None:
    """Penalties, grammar, seed and log-probabilities see the accepted drafts before the next position."""
    rng = np.random.default_rng(3)
    rows = [rng.normal(size=SIZE).astype(np.float32) for _ in range(12)]
    for seed in range(20):
        asked = request(
            params=SamplingParams(temperature=1.3, seed=seed),
            penalties=Penalties(0.3, 0.2, 1.2),
            top_logprobs=2,
        )
        alone, grammar = job(replace(asked, constraint=Odd())), Odd()
        chooser = JobChooser()
        one_by_one = [choose(chooser, alone, one)[0] for one in rows]
        drafted = job(replace(asked, constraint=grammar))
        while len(drafted.sequence.produced) < len(rows):
            at = len(drafted.sequence.produced)
            guesses = [token if (at + seed) % 3 else 0 for token in one_by_one[at : at + 3]]
            guesses = guesses[: len(rows) - at - 1]
            choose(chooser, drafted, *rows[at : at + 1 + len(guesses)], drafts=guesses)
        assert drafted.sequence.produced == one_by_one == grammar.told
        assert drafted.chosen == alone.chosen


def test_log_probabilities_are_of_the_unmodified_logits() -> None:
    one = job(request(top_logprobs=2, logit_bias={4: 100.0}))
    values = row(7, 9)
    assert choose(JobChooser(), one, values) == [4]
    logs = values - math.log(np.exp(values.astype(np.float64)).sum())
    kept = one.chosen[0]
    assert (kept.token, [token for token, _ in kept.top]) == (4, [7, 9])
    assert kept.logprob == pytest.approx(float(logs[4]), abs=1e-5)
    assert [value for _, value in kept.top] == pytest.approx([float(logs[7]), float(logs[9])], abs=1e-5)
    assert logprob(values, 7, 0).top == ()


def test_a_prompt_row_speaks_of_the_token_behind_it() -> None:
    chooser = JobChooser()
    one = job(GenerateRequest((4, 5, 6, 7), 1, top_logprobs=1, prompt_logprobs=True))
    chooser.jobs[0] = one
    rows = np.stack([row(9), row(6), row(7), row(1)])
    wanted = Wanted(one.sequence, 0, 4, 0, True)
    chooser.prompt_rows(wanted, 0, rows[:1])
    chooser.prompt_rows(wanted, 1, rows[1:])
    first, *others = one.prompt_logprobs
    assert first is None
    assert [(kept.token, kept.top[0][0]) for kept in others if kept] == [(5, 9), (6, 6), (7, 7)]


@pytest.mark.parametrize("values", [np.full(SIZE, np.nan, np.float32), np.full(SIZE, -np.inf, np.float32)])
def test_logits_that_say_nothing_end_their_own_request(
    values: npt.NDArray[np.float32], caplog: pytest.LogCaptureFixture
) -> None:
    chooser, bad, good = JobChooser(), job(request()), job(request(), 1)
    with caplog.at_level(logging.CRITICAL, "ropeway.chooser"):
        assert len(choose(chooser, bad, values, row(1), drafts=(1,))) == 1
        assert bad.error.startswith("no token could be chosen: logits")
        assert len(choose(chooser, bad, row(1))) == 1
    assert (choose(chooser, good, row(7)), good.error) == ([7], "")


def test_a_grammar_that_fails_ends_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Odd):
        def advance(self, token: int) -> None:
            raise RuntimeError("stuck")

    chooser, bad = JobChooser(), job(request(constraint=Broken()))
    choose(chooser, bad, row(1))
    assert bad.error == "no token could be chosen: stuck"
    assert "stuck" in caplog.text


def test_prompt_rows_that_say_nothing_end_their_own_request(caplog: pytest.LogCaptureFixture) -> None:
    chooser, bad = JobChooser(), job(request())
    chooser.jobs[0] = bad
    chooser.prompt_rows(Wanted(bad.sequence, 0, 2, 0, True), 0, np.full((2, SIZE), np.nan, np.float32))
    assert "not a number" in bad.error


def test_the_choice_is_the_samplers() -> None:
    """Nothing is added where nothing is asked for."""
    values = np.random.default_rng(0).normal(size=200).astype(np.float32)
    params = SamplingParams(temperature=0.8, top_k=40, top_p=0.9, min_p=0.02, seed=5)
    one = job(request(params=params))
    assert [choose(JobChooser(), one, values)[0] for _ in range(20)] == [
        sampler.choose(values, params, position) for position in range(20)
    ]
