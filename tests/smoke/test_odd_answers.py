"""A service that answers with pages and half sentences, prices that rise, and a clock that jumps."""

from __future__ import annotations

from collections import deque

import pytest

from smoke.conftest import Runs
from smoke.fake_rented import offer as make_offer


def test_pages_and_failures_with_status_200_are_no_answers(runs: Runs) -> None:
    runs.moods(
        searches=deque(["page", "false", "ok"]),
        creates=deque(["page", "ok"]),
        statuses=deque(["page", "false", "ok"]),
        lists=deque(["page", "false", "missing", "ok"]),
        destroys=deque(["page", "false", "ok"]),
    )
    value = runs.result(runs.start(), 0)
    assert len(runs.fake.ever) == 2, "the create that was answered with a page is not repeated"
    assert [rented["destroyed"] for rented in value["instances"]] == [True, True]
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_a_404_of_another_making_is_not_taken_for_gone(runs: Runs) -> None:
    runs.moods(destroys=deque(["missing"]))

    def away(_: object) -> None:
        if runs.fake.asked("destroy"):
            runs.moods(statuses=deque(["missing"]))

    runs.fake.gates["status"] = away
    process = runs.start("--limit", "destroy=2")
    value = runs.result(process, 1)
    assert [rented["destroyed"] for rented in value["instances"]] == [False, False]
    for rented in runs.fake.rented:
        assert f"instance {rented}: it is still listed after it was destroyed" in process.err
    assert len(runs.ledgers) == 1


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        (("--max-price", "0.12"), "the machines cost $0.2100 an hour together, and --max-price is $0.12"),
        (("--budget", "0.01"), "the budget is $0.01, and 180 s could cost $0.0105"),
    ],
)
def test_a_price_that_rises_between_search_and_create(runs: Runs, flag: tuple[str, str], said: str) -> None:
    # 5 and 6 cents were offered. The first instance is looked at first, and costs 15: 21 together, so far as is known.
    runs.moods(dearer=3.0)
    value = runs.failed(runs.start("--timeout", "60", *flag), "running", said)
    assert sum(rented["price"] for rented in value["instances"]) == pytest.approx(0.33)


def test_what_a_run_cost_is_counted_at_the_price_that_was_charged(runs: Runs) -> None:
    runs.moods(dearer=1000.0)
    process = runs.start()
    value = runs.result(process, 0)
    assert [rented["price"] for rented in value["instances"]] == pytest.approx([50.0, 60.0])
    assert value["dollars"] > 0.11 * 100 / 3600
    assert "costs $50.0000 an hour, and its offer said $0.0500" in process.err


def test_an_offer_that_takes_anothers_place_keeps_to_the_budget(runs: Runs) -> None:
    # 180 s at most (60 and 120 to destroy): $0.01 is 20 cents an hour. 5 and 6 cents fit, 50 do not.
    runs.fake.offers = [make_offer(0), make_offer(1), make_offer(45)]
    runs.moods(creates=deque(["gone", "ok"]))
    runs.failed(runs.start("--timeout", "60", "--budget", "0.01"), "create", "no machine for stage 0")
    assert runs.fake.ever == []


def test_a_run_that_may_keep_its_machines_counts_the_time_they_stay(runs: Runs) -> None:
    # 780 s with the ten minutes: 11 cents an hour come to $0.0238.
    flags = ("--timeout", "60", "--budget", "0.02", "--keep-on-failure")
    runs.failed(runs.start(*flags), "search", "780 s could cost $0.0238")


def test_a_clock_that_jumps_by_a_day_to_and_fro_changes_nothing(runs: Runs) -> None:
    jumps = (
        "import itertools, time\n"
        "real, days = time.time, itertools.cycle((-86400.0, 86400.0))\n"
        "time.time = lambda: real() + next(days)"
    )
    value = runs.result(runs.start(prelude=jumps), 0)
    assert all(0 <= step["seconds"] < 100 for step in value["steps"])
    assert runs.fake.rented == []
