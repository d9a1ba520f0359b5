"""The whole command against the fake service: what a good run looks like, and what it tells whom."""

from __future__ import annotations

from collections import deque

import pytest

from smoke.conftest import Runs
from smoke.fake_rented import KEY
from smoke.fake_rented import offer as make_offer


def test_a_run_rents_says_hello_and_gives_everything_back(runs: Runs) -> None:
    runs.at_its_pace = True
    value = runs.result(runs.start(), 0)
    assert [*value] == ["text", "token_ids", "ok", "reason", "steps", "instances", "dollars"]
    assert all([*step] == ["name", "seconds"] for step in value["steps"])
    assert all([*rented] == ["id", "price", "destroyed"] for rented in value["instances"])
    assert (value["ok"], value["reason"]) == (True, "")
    assert value["text"] == "hello to 'Say hello'"
    assert value["token_ids"] == [5, 7]
    names = ["search", "node", "create", "running", "converge", "workers", "names", "reply", "destroy"]
    assert [step["name"] for step in value["steps"]] == names
    assert value["instances"] == [
        {"id": rented.id, "price": price, "destroyed": True}
        for rented, price in zip(runs.fake.ever, (0.05, 0.06), strict=True)
    ]
    assert 0 < value["dollars"] < 0.11 * 100 / 3600
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_the_key_goes_to_the_service_alone(runs: Runs) -> None:
    runs.moods(commands={1: ("false",)})
    process = runs.start("--num-stages", "2")
    runs.failed(process, "instance", "exited")
    for request in runs.fake.requests:
        assert KEY not in request.path
        assert KEY.encode() not in request.body
        assert request.headers.get("authorization") == (None if request.kind == "fetch" else f"Bearer {KEY}")
    assert runs.fake.asked("fetch"), "the log was fetched from where the service put it"
    for rented in runs.fake.ever:
        assert KEY not in rented.said()
        assert KEY not in str(rented.body)


def test_every_instance_is_told_its_stage_and_carries_the_run_in_its_label(runs: Runs) -> None:
    runs.result(runs.start("--num-stages", "3", "--label", "mine-1"), 0)
    run = runs.fake.ever[0].body["label"].partition("/")[0]
    assert run.startswith("mine-1-"), "and goes on so that it is this run's alone"
    assert [rented.body["label"] for rented in runs.fake.ever] == [f"{run}/{stage}" for stage in range(3)]
    for stage, rented in enumerate(runs.fake.ever):
        environment = rented.body["env"]
        assert (environment["STAGE"], environment["NUM_STAGES"], environment["MODEL"]) == (str(stage), "3", "any")
        assert environment["SEED_ADDR"] == runs.fake.ever[0].body["env"]["SEED_ADDR"] != ""
        assert environment["RUN_LABEL"] == run
        assert rented.body["runtype"] == "args"


def test_offers_that_have_gone_are_passed_over(runs: Runs) -> None:
    runs.moods(creates=deque(["gone", "gone", "ok"]))
    value = runs.result(runs.start(), 0)
    assert [rented["price"] for rented in value["instances"]] == [0.07, 0.08]


def test_no_two_instances_are_of_one_machine_and_none_breaks_the_terms(runs: Runs) -> None:
    runs.fake.offers = [
        make_offer(0),
        make_offer(1, machine_id=90),
        make_offer(2, geolocation=None),
        make_offer(3, inet_down=20.0),
        make_offer(4, reliability2=0.9),
        make_offer(5, cuda_max_good=11.8),
        make_offer(6, num_gpus=2),
        make_offer(7, rented=True),
        make_offer(8),
    ]
    value = runs.result(runs.start(), 0)
    assert [rented["price"] for rented in value["instances"]] == [0.05, 0.13]


def test_too_many_requests_are_waited_out(runs: Runs) -> None:
    runs.moods(
        searches=deque(["busy", "broken", "ok"]),
        creates=deque(["busy", "ok"]),
        statuses=deque(["busy", "ok"]),
        destroys=deque(["busy", "broken", "ok"]),
    )
    value = runs.result(runs.start(), 0)
    assert value["ok"]
    assert len(runs.fake.ever) == 2, "what was busy had rented nothing"
    assert runs.fake.rented == []


@pytest.mark.parametrize("mood", ["lost", "broken"])
def test_a_create_without_an_answer_that_did_rent_is_found_and_not_repeated(runs: Runs, mood: str) -> None:
    runs.moods(creates=deque(["ok", mood, "ok"]))
    value = runs.result(runs.start("--request-timeout", "2"), 0)
    assert len(runs.fake.ever) == 2
    assert [rented["id"] for rented in value["instances"]] == [rented.id for rented in runs.fake.ever]
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_the_human_form_shows_the_same(runs: Runs) -> None:
    process = runs.start("--no-json")
    assert process.status() == 0, process.said()
    assert process.out.splitlines()[1] == "hello to 'Say hello'"
    assert process.out.startswith("-- reply -----")
    for rented in runs.fake.ever:
        assert f"instance {rented.id}: stage {rented.stage}" in process.err
    words = process.err.splitlines()
    names = ["search", "node", "create", "running", "converge", "workers", "names", "reply", "destroy"]
    assert [line.split()[1] for line in words if line.startswith("step ")] == [f"{name}:" for name in names]
    assert words[-3] == "2 tokens: 5 7"
    assert float(words[-2].removeprefix("$")) > 0
    assert words[-1] == "ok"
