"""Every row of the failure table: the reason by name, exit status 1, and nothing that is still rented."""

from __future__ import annotations

from collections import deque

import pytest

from smoke.conftest import Runs
from smoke.fake_rented import SLEEPER
from smoke.fake_rented import offer as make_offer


def test_fewer_than_two_offers(runs: Runs) -> None:
    runs.fake.offers = [make_offer(0), make_offer(1, machine_id=90)]
    value = runs.failed(runs.start(), "search", "not 2 machines")
    assert value["instances"] == []
    assert runs.fake.ever == []


def test_offers_that_cost_too_much_together(runs: Runs) -> None:
    runs.failed(runs.start("--max-price", "0.10"), "search", "not 2 machines for $0.1 an hour together")
    assert runs.fake.ever == []


def test_a_budget_that_the_longest_run_could_break(runs: Runs) -> None:
    runs.failed(runs.start("--budget", "0.001"), "search", "the budget is $0.001")
    assert runs.fake.ever == []


@pytest.mark.parametrize("before", [[], ["ok"]], ids=["the first", "the second"])
def test_a_create_is_rejected(runs: Runs, before: list[str]) -> None:
    runs.moods(creates=deque([*before, "refused"]))
    value = runs.failed(runs.start(), "create", f"no machine for stage {len(before)}", "the image is not a name")
    assert len(value["instances"]) == len(before)


def test_an_account_without_credit_is_not_asked_again(runs: Runs) -> None:
    runs.moods(creates=deque(["denied"]))
    runs.failed(runs.start(), "create", "no credit on the account")
    assert len(runs.fake.asked("create")) == 1


def test_every_offer_has_gone(runs: Runs) -> None:
    runs.moods(creates=deque(["ok", "gone"]))
    runs.failed(runs.start(), "create", "no machine for stage 1", "no_such_ask")


def test_a_create_without_an_answer_that_did_not_rent(runs: Runs) -> None:
    runs.moods(creates=deque(["swallowed", "ok"]))
    process = runs.start("--request-timeout", "1", "--reconcile", "1")
    value = runs.result(process, 0)
    assert [rented["price"] for rented in value["instances"]] == [0.06, 0.07], "the offer is not tried again"
    assert runs.fake.rented == []


def test_an_instance_that_never_runs(runs: Runs) -> None:
    runs.moods(instances={1: "never"})
    runs.failed(runs.start("--limit", "running=2"), "running", "(stage 1) is loading", "within 2 s")


def test_an_instance_that_cannot_start(runs: Runs) -> None:
    runs.moods(instances={0: "error"})
    runs.failed(runs.start(), "running", "(stage 0) is loading", "nvidia-container-cli")


def test_an_instance_that_runs_and_exits_shows_its_log(runs: Runs) -> None:
    runs.moods(commands={1: ("sh", "-c", "echo no GPU here; exit 3")})
    process = runs.start()
    runs.failed(process, "(stage 1) is exited", "exited with 3")
    assert "no GPU here" in process.err


def test_an_instance_that_vanishes(runs: Runs) -> None:
    runs.moods(instances={1: "vanish"}, commands={0: SLEEPER})
    runs.failed(runs.start(), "(stage 1) has vanished")


def test_a_cluster_that_never_converges(runs: Runs) -> None:
    runs.moods(commands={1: SLEEPER})
    process = runs.start("--limit", "converge=3")
    runs.failed(process, "converge", "of 3 nodes have joined", "within 3 s")
    assert "a container that does nothing" in process.err


def test_a_worker_that_is_never_ready(runs: Runs) -> None:
    runs.moods(environment={"STUB_RANK": "never-loaded"})
    runs.failed(runs.start("--limit", "workers=2"), "workers", "pp-stage-0 and pp-stage-1 did not resolve")


def test_an_entry_and_exit_that_never_resolve(runs: Runs) -> None:
    runs.moods(environment={"STUB_RANK": "never-whole"})
    runs.failed(runs.start("--limit", "names=2"), "names", "pp-entry and pp-exit did not resolve", "within 2 s")


def test_an_entry_alone_that_never_resolves(runs: Runs) -> None:
    runs.moods(environment={"STUB_RANK": "entry-never-whole"})
    runs.failed(runs.start("--limit", "names=4"), "names: pp-entry ", "did not resolve within 4 s")
    assert "registered pp-entry" not in runs.fake.of_stage(0).said()


def test_an_empty_reply(runs: Runs) -> None:
    runs.moods(environment={"STUB_RANK": "empty"})
    value = runs.failed(runs.start(), "reply", "the reply is empty")
    assert value["text"] == ""


def test_a_stage_whose_worker_dies_in_mid_answer(runs: Runs) -> None:
    runs.moods(environment={"STUB_RANK": "dies"})
    process = runs.start()
    runs.failed(process, "reply", "stage")
    assert "what the worker wrote last" in process.err


def test_a_stage_that_is_lost_while_the_reply_is_waited_for(runs: Runs) -> None:
    runs.moods(environment={"STUB_RANK": "slow"})
    process = runs.start()
    rented = runs.fake.of_stage(1)
    runs.fake.until(lambda: "answering a request" in runs.fake.of_stage(0).said())
    rented.kill()
    value = runs.failed(process, "reply", "stage")
    assert "1" in value["reason"], "it is named"


def test_the_total_deadline(runs: Runs) -> None:
    runs.moods(environment={"STUB_RANK": "slow"})
    runs.failed(runs.start("--timeout", "4"), "before the run's --timeout")


def test_a_destroy_that_fails_is_named_with_the_command_and_can_be_cleaned_up(runs: Runs) -> None:
    runs.moods(destroys=deque(["broken"]))
    process = runs.start("--limit", "destroy=2")
    value = runs.result(process, 1)
    assert "destroy" in value["reason"]
    assert value["text"], "the reply did come"
    left = runs.fake.rented
    assert len(left) == 2
    for rented in left:
        assert f"NOT DESTROYED, may still cost money: instance {rented}" in process.err
        assert f"/api/v0/instances/{rented}/" in process.err
    assert process.err.splitlines()[-1].strip() == "or run: pp-smoke-run --cleanup"
    assert [rented["destroyed"] for rented in value["instances"]] == [False, False]
    assert len(runs.ledgers) == 1

    runs.moods(destroys=deque(["ok"]))
    cleanup = runs.cleanup()
    assert cleanup.status() == 0, cleanup.said()
    assert runs.fake.rented == []
    assert runs.ledgers == []


def test_a_destroy_that_says_yes_and_does_nothing_is_noticed(runs: Runs) -> None:
    runs.moods(destroys=deque(["stuck"]))
    process = runs.start("--limit", "destroy=2")
    runs.result(process, 1)
    assert "still listed after it was destroyed" in process.err


def test_one_that_cannot_be_destroyed_does_not_keep_the_others(runs: Runs) -> None:
    def gate(request: object) -> None:
        path = getattr(request, "path", "")
        if path.endswith(f"/{runs.fake.ever[0].id}/"):
            runs.moods(destroys=deque(["broken"]))
        else:
            runs.moods(destroys=deque(["ok"]))

    runs.fake.gates["destroy"] = gate
    value = runs.result(runs.start("--num-stages", "3", "--limit", "destroy=3"), 1)
    assert [rented["destroyed"] for rented in value["instances"]] == [False, True, True]


def test_a_failed_run_may_keep_its_machines(runs: Runs) -> None:
    runs.moods(environment={"STUB_RANK": "empty"})
    process = runs.start("--keep-on-failure")
    value = runs.result(process, 1)
    assert "the reply is empty" in value["reason"]
    assert len(runs.fake.rented) == 2
    assert len(runs.ledgers) == 1
    assert runs.cleanup().status() == 0
    assert runs.fake.rented == []
