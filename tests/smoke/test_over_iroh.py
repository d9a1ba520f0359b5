"""The same command and the same failures with nodes that meet over iroh and SWIM, in a network namespace."""

from __future__ import annotations

import pytest

import namespaces

HERE = "tests/smoke"
GOOD = (f"{HERE}/test_rented_run.py::test_a_run_rents_says_hello_and_gives_everything_back",)
REAL = (f"{HERE}/test_real_stages.py::test_the_tokens_are_those_of_one_process",)
LOST = (
    f"{HERE}/test_failures.py::test_an_entry_and_exit_that_never_resolve",
    f"{HERE}/test_failures.py::test_a_cluster_that_never_converges",
    f"{HERE}/test_failures.py::test_a_worker_that_is_never_ready",
    f"{HERE}/test_failures.py::test_a_stage_that_is_lost_while_the_reply_is_waited_for",
    f"{HERE}/test_real_stages.py::test_a_worker_killed_in_mid_decode",
)
SIGNALS = (
    f"{HERE}/test_secrets.py::test_no_process_shows_the_key_or_the_ticket",
    f"{HERE}/test_interruptions.py::test_ctrl_c_at_a_terminal_reaches_every_process_of_ours",
    f"{HERE}/test_interruptions.py::test_ctrl_c_in_each_step_gives_everything_back[reply]",
    f"{HERE}/test_interruptions.py::test_nodes_destroy_themselves_when_their_orchestrator_is_gone",
)


TESTS = (*GOOD, *REAL, *LOST, *SIGNALS)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.partition("::")[2])
def test_over_iroh(monkeypatch: pytest.MonkeyPatch, test: str) -> None:
    pytest.importorskip("iroh", reason="nodes that meet over iroh need the extra iroh")
    monkeypatch.setenv("SMOKE_CLUSTER", "iroh")
    assert namespaces.pytest_in_namespace(test) == 1
