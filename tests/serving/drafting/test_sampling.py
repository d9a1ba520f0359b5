"""Sampled replies keep their distribution under drafting, because drafting does not change them at all.

The token of a position depends on its logits and on (seed, position) alone, so verification is to choose at each
position and stop where that differs from the draft. The proof is the first test; the second looks at the frequencies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Items

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving import sampler
from ropeway.serving.sequence import SamplingParams

VOCABULARY = 7


def row_of(ids: Items[int]) -> sampler.Row:
    """A toy model: the logits behind these ids."""
    value = sum((index + 3) * (token + 1) for index, token in enumerate(ids))
    return np.cos(np.arange(VOCABULARY, dtype=np.float32) * (1 + value % 11) + value % 5).astype(np.float32) * 2


def rows_of(known: list[int], drafts: Items[int]) -> sampler.Rows:
    return np.stack([row_of([*known, *drafts[:count]]) for count in range(len(drafts) + 1)])


def alone(params: SamplingParams, count: int) -> list[int]:
    reply: list[int] = []
    while len(reply) < count:
        reply.append(sampler.choose(row_of(reply), params, len(reply)))
    return reply


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    top_k=st.integers(0, VOCABULARY),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, (1 << 64) - 1),
)


@given(params, st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=4), min_size=20, max_size=20), st.booleans())
def test_any_drafts_give_the_same_reply(params: SamplingParams, drafts: list[list[int]], helped: bool) -> None:
    expected = alone(params, 20)
    reply: list[int] = []
    for some in drafts:
        if helped:
            some = [*expected[len(reply) : len(reply) + 2], *some]
        chosen = sampler.verify(rows_of(reply, some), some, params, len(reply))
        assert 1 <= len(chosen) <= len(some) + 1
        assert chosen[:-1] == some[: len(chosen) - 1]
        reply += chosen
    assert reply[:20] == expected


@pytest.mark.parametrize("drafted", ["likeliest", "unlikeliest", "by the seed itself"])
def test_the_frequencies_are_those_of_the_distribution(drafted: str) -> None:
    """Chi-square over the 49 pairs of the first two tokens, 8,000 seeds: a draft that knows the seed may not bias it
    either. The statistic has 48 degrees of freedom; 95.0 is passed once in some 15,000 times, and the seeds are fixed.
    """
    count = 8_000
    seen: Counter[tuple[int, int]] = Counter()
    first = row_of([])
    for seed in range(count):
        params = SamplingParams(temperature=0.8, seed=seed)
        draft = {
            "likeliest": int(first.argmax()),
            "unlikeliest": int(first.argmin()),
            "by the seed itself": sampler.choose(first, params, 0) if seed % 2 else seed % VOCABULARY,
        }[drafted]
        reply = sampler.verify(rows_of([], [draft]), [draft], params, 0)
        if len(reply) == 1:
            reply += sampler.verify(rows_of(reply, []), [], params, 1)
        seen[reply[0], reply[1]] += 1
    statistic = 0.0
    for one in range(VOCABULARY):
        for other in range(VOCABULARY):
            share = chance(first)[one] * chance(row_of([one]))[other]
            statistic += (seen[one, other] - count * share) ** 2 / (count * share)
    assert statistic < 95.0


def chance(row: sampler.Row) -> sampler.Probs:
    weights: sampler.Probs = np.exp(row.astype(np.float64) / 0.8)
    weights /= weights.sum()
    return weights


def test_verification_ends_with_a_stop_token() -> None:
    rows = rows_of([], [3, 4])
    best = [int(row.argmax()) for row in rows]
    drafts = best[:2]
    rows = rows_of([], drafts)
    reply = sampler.verify(rows, drafts, SamplingParams(), 0)
    assert sampler.verify(rows, drafts, SamplingParams(), 0, {reply[0]}) == reply[:1]
