"""From samples to costs, and which layers are timed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ropeway.placement.facts import Cost, Layer, Model
from ropeway.placement.fit import (
    STAGE,
    Condition,
    Sample,
    fit_costs,
    mean_of_most,
    spread,
    through,
    usual,
    widest_spread,
)
from ropeway.placement.ranges import kinds_apart, kinds_in, ranges_to_time

TRUE = {STAGE: Cost(0.3, 0.01), "attention": Cost(0.5, 0.02, 0.0004), "linear": Cost(0.4, 0.05)}
CONDITIONS = (Condition(1, 64), Condition(1, 768), Condition(4, 64))


def samples(stages: list[dict[str, int]], noise: float = 0.0, times: int = 5) -> list[Sample]:
    draw = random.Random(1)
    found = []
    for kinds in stages:
        for at in CONDITIONS:
            ms = TRUE[STAGE].ms(at.rows, at.depth)
            ms += sum(count * TRUE[kind].ms(at.rows, at.depth) for kind, count in kinds.items())
            found += [Sample(kinds, at, ms * (1 + noise * draw.uniform(-1, 1))) for _ in range(times)]
    return found


def test_the_kinds_and_the_stage_come_apart_exactly() -> None:
    found = fit_costs(samples([{"attention": 4, "linear": 2}, {"attention": 8, "linear": 4}, {"linear": 3}]))
    for kind, cost in TRUE.items():
        for at in (*CONDITIONS, Condition(2, 300)):
            assert found[kind].ms(at.rows, at.depth) == pytest.approx(cost.ms(at.rows, at.depth), rel=1e-6)


def test_noise_of_two_percent_stays_small() -> None:
    found = fit_costs(samples([{"attention": 7}, {"attention": 15}], noise=0.02, times=40))
    assert found["attention"].ms(1, 400) == pytest.approx(TRUE["attention"].ms(1, 400), rel=0.03)


def test_what_disturbs_most_of_the_batches_of_some_conditions_spoils_nothing() -> None:
    # 3 of 5 batches of the larger stage take half as long again: a burst on another hyperthread of the core.
    calm = samples([{"attention": 7}, {"attention": 15}], times=5)
    hit = [replace(s, ms=s.ms * 1.5) if s.kinds["attention"] == 15 and n % 5 > 1 else s for n, s in enumerate(calm)]
    found = fit_costs(hit)
    assert found["attention"].ms(1, 400) == pytest.approx(TRUE["attention"].ms(1, 400), rel=1e-6)
    assert widest_spread(hit) > 0.3


def test_nothing_is_ever_below_zero() -> None:
    at = Condition(1, 0)
    found = fit_costs([Sample({"a": 1}, at, 1.0), Sample({"a": 3}, at, 4.0)])
    assert found[STAGE] == Cost()
    assert 1.0 < found["a"].ms(1) < 1.4


def test_a_prompt_of_one_size_is_told_by_its_rows_and_depth() -> None:
    found = through([(Condition(64, 32.5), 10.0), (Condition(256, 128.5), 40.0), (Condition(256, 640.5), 48.0)])
    for rows, depth, ms in ((64, 32.5, 10.0), (256, 128.5, 40.0), (256, 640.5, 48.0)):
        assert found.ms(rows, depth) == pytest.approx(ms, rel=0.02)


def test_stages_that_cannot_tell_kinds_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot tell the kinds"):
        fit_costs(samples([{"attention": 2, "linear": 2}, {"attention": 4, "linear": 4}]))


def test_a_spread_is_told() -> None:
    assert spread([1.0, 2.0]) == 0.0
    assert spread([10.0] * 8) == 0.0
    assert spread([8, 9, 10, 11, 12]) == pytest.approx(0.3)
    calm = samples([{"attention": 7}], times=9)
    wild = [*calm, *(Sample({"attention": 7}, Condition(1, 64), ms) for ms in (1, 9, 30, 70, 2, 50, 8, 9, 60, 1, 99))]
    assert widest_spread(calm) == pytest.approx(0.0)
    assert widest_spread(wild) > 0.5


def model(kinds: str, nbytes: int = 10) -> Model:
    return Model("m", tuple(Layer(kind, nbytes) for kind in kinds), 4)


@pytest.mark.parametrize(
    ("kinds", "every"),
    [("a" * 30, 1), ("aaab" * 8, 1), ("aaab" * 8, 4), ("abc" * 10, 1), ("aab", 1), ("a" * 20 + "b", 1)],
)
def test_ranges_tell_kinds_apart_where_the_cuts_allow(kinds: str, every: int) -> None:
    one = model(kinds)
    found = ranges_to_time(one, every)
    assert found[0][0] == 0
    for first, end in found:
        assert 0 <= first < end <= len(kinds)
        assert first % every == 0
        assert end % every == 0 or end == len(kinds)
    assert kinds_apart(one, found) == (every == 1)
    if every == 1:
        stages = [kinds_in(one, *range_) for range_ in found]
        at = Condition(1, 0)
        times = [Sample(s, at, 0.1 + sum("abc".index(k) + 1.0 for k in s for _ in range(s[k]))) for s in stages]
        fitted = fit_costs(times)
        assert fitted["a"].ms(1) == pytest.approx(1.0)
        assert all(fitted[kind].ms(1) == pytest.approx("abc".index(kind) + 1.0) for kind in set(kinds))


def test_a_large_model_is_timed_on_few_layers() -> None:
    found = ranges_to_time(model("a" * 60, nbytes=600_000_000))
    assert max(end for _, end in found) <= 3
    assert ranges_to_time(model("a")) == [(0, 1)]


def test_a_steady_machine_is_as_fast_as_usual_and_a_wavering_one_is_not() -> None:
    calm = samples([{"attention": 7}, {"attention": 15}], times=20)
    assert usual(calm) == pytest.approx(1.0)
    # Every other batch takes half as long again: on average a quarter more.
    wavering = [replace(s, ms=s.ms * (1.5 if n % 2 else 1.0)) for n, s in enumerate(calm)]
    assert usual(wavering) == pytest.approx(1.25, rel=0.02)
    assert usual([]) == 1.0


def test_a_hitch_does_not_count_as_usual() -> None:
    assert mean_of_most([1.0] * 19 + [500.0]) == 1.0
    assert mean_of_most([4.0, 2.0]) == 3.0
