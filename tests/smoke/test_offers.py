"""Which offers are taken."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ropeway.launch.provider import Offer
from ropeway.smoke.offers import Walk


def offers(*machine_and_price: tuple[int, float]) -> list[Offer]:
    return [Offer(number, machine, price) for number, (machine, price) in enumerate(machine_and_price)]


def test_the_cheapest_comes_first_and_machines_are_used_once() -> None:
    walk = Walk(offers((1, 0.3), (2, 0.1), (2, 0.2), (3, 0.4)), 3)
    assert [offer.price for offer in walk.cheapest()] == [0.1, 0.3, 0.4]
    first = next(walk)
    walk.take(first)
    assert (first.machine, next(walk).machine) == (2, 1), "machine 2 has been taken"


def test_an_offer_that_was_not_taken_does_not_use_up_its_machine() -> None:
    walk = Walk(offers((1, 0.1), (1, 0.2)), 1)
    assert [offer.price for offer in walk] == [0.1, 0.2]


def test_an_offer_is_left_out_where_the_others_would_then_cost_too_much() -> None:
    # 0.1 + 0.2 = 0.3 fits; once 0.1 has gone, 0.2 + 0.3 = 0.5 does not.
    walk = Walk(offers((1, 0.1), (2, 0.2), (3, 0.3)), 2, 0.4)
    assert [offer.price for offer in walk.cheapest()] == [0.1, 0.2]
    assert next(walk).price == 0.1
    assert list(walk) == []


def test_there_may_be_too_few() -> None:
    assert Walk(offers((1, 0.1), (1, 0.2)), 2).cheapest() == []
    assert Walk([], 2).cheapest() == []


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), max_size=7),
    st.integers(1, 3),
    st.integers(1, 25),
)
def test_what_is_taken_is_the_cheapest_there_is(entries: list[tuple[int, int]], count: int, limit: int) -> None:
    found = Walk(offers(*[(machine, float(price)) for machine, price in entries]), count, float(limit)).cheapest()
    sums = [
        sum(price for _, price in chosen)
        for chosen in combinations(entries, count)
        if len({machine for machine, _ in chosen}) == count
    ]
    within = [total for total in sums if total <= limit]
    if within:
        assert sum(offer.price for offer in found) == min(within)
        assert len({offer.machine for offer in found}) == count
    else:
        assert len(found) < count
