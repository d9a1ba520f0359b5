"""The sampler against plain definitions, and its draws against the distribution they must have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.serving import sampler
from ropeway.serving.sampler import Candidates, Ids, Probs, Row
from ropeway.serving.sequence import SamplingParams


def logits(size: int, seed: int = 0, spread: float = 3.0) -> Row:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def ranked(row: Row) -> list[int]:
    return sorted(range(row.size), key=lambda token: (-row[token], token))


def softmax(values: Probs) -> Probs:
    weights: Probs = np.exp(values - values.max())
    weights /= weights.sum()
    return weights


def reference(row: Row, params: SamplingParams) -> dict[int, float]:
    """The filters one after the other, each by its definition, everything ranked, f64."""
    left = ranked(row)
    if params.top_k:
        left = left[: params.top_k]
    sums = np.cumsum(softmax(row[left].astype(np.float64)))
    left = left[: 1 + int(np.sum(sums < params.top_p))] if params.top_p < 1.0 else left
    probs = softmax(row[left].astype(np.float64))
    left = [token for token, prob in zip(left, probs, strict=True) if prob >= params.min_p * probs[0] * (1 - 1e-6)]
    probs = softmax(row[left].astype(np.float64) / params.temperature)
    return dict(zip(left, probs.tolist(), strict=True))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=1),
        SamplingParams(temperature=0.7, top_k=40),
        SamplingParams(temperature=1.5, top_k=900, top_p=0.9),
        SamplingParams(temperature=0.8, top_p=0.5),
        SamplingParams(temperature=0.8, top_p=0.9999),
        SamplingParams(temperature=0.8, min_p=0.05),
        SamplingParams(temperature=2.0, top_k=300, top_p=0.97, min_p=0.01),
        SamplingParams(temperature=0.8, top_p=1e-9),
        SamplingParams(temperature=0.8, top_k=100_000, min_p=1.0),
    ],
)
@pytest.mark.parametrize("size", [5, 128, 1000, 5000])
def test_filters_follow_their_definitions(params: SamplingParams, size: int) -> None:
    for seed in range(3):
        row = logits(size, seed)
        found = sampler.candidates(row, params)
        expected = reference(row, params)
        assert set(found.ids.tolist()) == set(expected)
        assert found.probs == pytest.approx([expected[token] for token in found.ids.tolist()], rel=1e-5, abs=1e-12)
        assert found.probs.sum() == pytest.approx(1.0, abs=1e-12)


@given(
    values=st.lists(st.sampled_from([-np.inf, -2.0, -1.0, 0.0, 0.5, 3.0]), min_size=1, max_size=700),
    count=st.integers(1, 800),
)
def test_largest_breaks_ties_by_id(values: list[float], count: int) -> None:
    row = np.array(values, dtype=np.float32)
    assert sampler.largest(row, count).tolist() == ranked(row)[:count]


@pytest.mark.parametrize("count", [1, 2, 39, 40, 117, 118, 2000, 15000])
def test_largest_of_a_long_row(count: int) -> None:
    row = np.round(logits(15_003, 4), 1)
    assert sampler.largest(row, count).tolist() == ranked(row)[:count]


def test_greedy_takes_the_lowest_of_equals() -> None:
    row = np.zeros(1000, dtype=np.float32)
    row[[700, 31, 999]] = 2.5
    assert sampler.choose(row, SamplingParams(), 0) == 31
    assert sampler.choose(row, SamplingParams(temperature=1.0, top_k=1), 0) == 31
    assert sampler.candidates(row, SamplingParams()).ids.tolist() == [31]


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    rows = [logits(500, seed) for seed in range(8)]
    params = [SamplingParams(temperature=1.0, seed=seed) for seed in (7, 7, 8)]
    alone = [[sampler.choose(row, one, at) for at, row in enumerate(rows)] for one in params]
    mixed: list[list[int]] = [[], [], []]
    for at, row in enumerate(rows):
        for index in (2, 0, 1):
            mixed[index].append(sampler.choose(row, params[index], at))
    assert alone == mixed
    assert alone[0] == alone[1] != alone[2]


def test_uniform_is_pinned() -> None:
    """Philox-4x64-10 is the same everywhere; a change here changes every seeded reply."""
    assert [sampler.uniform(1, 0), sampler.uniform(1, 1), sampler.uniform(2**64 - 1, 10**6)] == [
        0.3035680343067586,
        0.35811448402596147,
        0.47637062105157735,
    ]
    assert sampler.uniforms(1, 1, 5)[0] == sampler.uniform(1, 1)
    assert len(set(sampler.uniforms(1, 1, 5) + sampler.uniforms(1, 2, 5))) == 10


def test_uniforms_are_uniform_over_positions_and_over_seeds() -> None:
    """Kolmogorov-Smirnov at 1 in 1000 (1.95 / sqrt(n)), and neighbours do not correlate (3.3 sigma)."""
    count = 4000
    for points in (
        np.array([sampler.uniform(12345, at) for at in range(count)]),
        np.array([sampler.uniform(seed, 3) for seed in range(count)]),
    ):
        steps = (np.arange(count) + 0.5) / count
        assert np.abs(np.sort(points) - steps).max() < 1.95 / math.sqrt(count)
        assert abs(float(np.corrcoef(points[:-1], points[1:])[0, 1])) < 3.3 / math.sqrt(count)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, seed=11),
        SamplingParams(temperature=0.6, top_k=12, seed=12),
        SamplingParams(temperature=1.3, top_p=0.8, min_p=0.02, seed=13),
    ],
)
def test_draws_have_the_distribution(params: SamplingParams) -> None:
    """Chi-square over the likelier tokens (expected at least 5), the rest in one bin; 4.5 sigma of the statistic."""
    row = logits(300, 5, spread=1.5)
    among = sampler.candidates(row, params)
    draws = 6000
    counts = np.bincount([sampler.choose(row, params, at) for at in range(draws)], minlength=row.size)
    assert set(np.flatnonzero(counts).tolist()) <= set(among.ids.tolist())
    expected = among.probs * draws
    often = expected >= 5
    seen = np.append(counts[among.ids[often]], counts[among.ids[~often]].sum())
    wanted = np.append(expected[often], max(expected[~often].sum(), 1e-9))
    statistic = float(((seen - wanted) ** 2 / np.maximum(wanted, 1.0)).sum())
    freedom = int(often.sum())
    assert statistic < freedom + 4.5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("size", [1, 2, 127, 128, 129, 1000])
def test_draw_inverts_the_cumulated_probabilities(size: int) -> None:
    probs = np.random.default_rng(size).random(size)
    probs[::3] = 0.0
    probs[-1] = 0.5
    probs /= probs.sum()
    among = Candidates(np.arange(size) + 10, probs)
    sums = probs.cumsum()
    for index in np.flatnonzero(probs).tolist():
        middle = float(sums[index] - probs[index] / 2)
        assert sampler.draw(among, middle) == index + 10
    assert sampler.draw(among, 0.0) == 10 + int(np.flatnonzero(probs)[0])
    assert sampler.draw(among, 1.0 - 2.0**-53) == 10 + size - 1


def test_a_token_without_probability_is_never_drawn() -> None:
    row = np.full(400, -np.inf, dtype=np.float32)
    row[[3, 390]] = 0.0
    for params in (SamplingParams(temperature=1.0), SamplingParams(temperature=1.0, top_k=5, top_p=0.99)):
        drawn = {sampler.draw(sampler.candidates(row, params), point) for point in (0.0, 0.49, 0.51, 1 - 2.0**-53)}
        assert drawn == {3, 390}


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_a_choice_is_refused(bad: float, temperature: float) -> None:
    row = np.full(10, -np.inf if bad == -np.inf else 0.0, dtype=np.float32)
    row[4] = bad
    with pytest.raises(ValueError, match="logits"):
        sampler.choose(row, SamplingParams(temperature=temperature), 0)
    with pytest.raises(ValueError, match="logits"):
        sampler.log_probs(row)


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
def test_extreme_temperatures(temperature: float) -> None:
    row = logits(1000, 9)
    among = sampler.candidates(row, SamplingParams(temperature=temperature))
    assert among.probs.max() == pytest.approx(1.0 if temperature < 1 else 1 / 1000, rel=1e-3)


def test_log_probs() -> None:
    row = logits(2000, 2)
    logs = sampler.log_probs(row)
    assert logs.dtype == np.float64
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-12)
    assert logs == pytest.approx(np.log(softmax(row.astype(np.float64))), abs=1e-12)
    assert sampler.top_log_probs(row, 3) == [(token, float(logs[token])) for token in ranked(row)[:3]]
    assert sampler.top_log_probs(row, 0) == []


def test_penalties_and_bias_leave_the_row_alone() -> None:
    row = np.array([2.0, -2.0, 1.0, 0.0, -np.inf], dtype=np.float32)
    before = row.copy()
    reply: Ids = np.array([0, 1, 0, 4, 0])
    assert sampler.with_bias(row, {2: 100.0, 3: -1.5}).tolist() == [2.0, -2.0, 101.0, -1.5, -np.inf]
    assert sampler.with_repetition_penalty(row, reply, 2.0).tolist() == [1.0, -4.0, 1.0, 0.0, -np.inf]
    assert sampler.with_count_penalties(row, reply, 0.5, 0.25).tolist() == [0.75, -2.75, 1.0, 0.0, -np.inf]
    assert sampler.with_bias(row, {}) is row
    assert sampler.with_repetition_penalty(row, reply, 1.0) is row
    assert sampler.with_count_penalties(row, reply, 0.0, 0.0) is row
    assert row.tolist() == before.tolist()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", math.nan),
        ("seed", -1),
        ("seed", 1 << 64),
    ],
)
def test_bad_parameters_are_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        SamplingParams(**{field: value})  # type: ignore[arg-type]
