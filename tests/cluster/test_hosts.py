"""Clusters of three hosts: each case of `hosts_cases.py`, in a network namespace of its own.

They mostly wait, for a silence to be noticed or a node to come back, so some run beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from namespaces import needed, pytest_in_namespace

pytest.importorskip("iroh", reason="the iroh extra is not installed")

pytestmark = pytest.mark.timeout(500)

CASES = (
    "one_command_on_each_and_an_answer",
    "nodes_that_do_not_have_the_model",
    "a_node_whose_disk_is_full",
    "ranks_killed_and_stopped",
    "replies_that_go_on",
    "an_agent_killed_and_come_back",
    "an_agent_stopped",
    "a_cable_pulled",
    "two_at_once_and_no_room",
    "the_one_who_serves_is_killed",
    "who_is_not_let_in",
    "strangers_while_it_serves",
    "far_apart",
)
AT_ONCE = 2
LIMIT_S = 230.0


@pytest.fixture(scope="module")
def played() -> Iterator[dict[str, Future[int]]]:
    """All cases under way; each gives how many tests have passed."""
    needed()
    pool = ThreadPoolExecutor(AT_ONCE, "case")

    def play(case: str) -> int:
        return pytest_in_namespace(f"tests/cluster/hosts_cases.py::test_{case}", limit_s=LIMIT_S)

    try:
        yield {case: pool.submit(play, case) for case in CASES}
    finally:
        pool.shutdown(cancel_futures=True)  # also where the run was interrupted


@pytest.mark.parametrize("case", CASES)
def test_in_a_namespace(case: str, played: dict[str, Future[int]]) -> None:
    assert played[case].result() == 1
