"""Clusters of three hosts: each case of `hosts_cases.py`, in a network namespace of its own."""

from __future__ import annotations

import pytest

from namespaces import pytest_in_namespace

pytest.importorskip("iroh", reason="the iroh extra is not installed")

CASES = (
    "one_command_on_each_and_an_answer",
    "nodes_that_do_not_have_the_model",
    "ranks_killed_and_stopped",
    "an_agent_killed_and_come_back",
    "a_cable_pulled",
    "two_at_once_and_no_room",
    "the_one_who_serves_is_killed",
)


@pytest.mark.parametrize("case", CASES)
def test_in_a_namespace(case: str) -> None:
    assert pytest_in_namespace(f"tests/cluster/hosts_cases.py::test_{case}") == 1
