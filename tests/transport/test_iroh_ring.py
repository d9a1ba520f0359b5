"""The ring's own tests, run again with every rank behind a node of its own and iroh between them."""

from __future__ import annotations

import pytest

from namespaces import pytest_in_namespace

pytest.importorskip("iroh", reason="the iroh extra is not installed")

TCPS_OWN = (
    "a_rank_that_listens_late",  # at an address
    "ipv6_and_host_names",
    "a_wildcard_is_refused",
)


def test_the_rings_tests_pass_over_iroh() -> None:
    not_these = " or ".join(TCPS_OWN)
    files = ("tests/transport/test_ring.py", "tests/transport/test_faults.py")
    passed = pytest_in_namespace("-p", "transport.over_iroh", *files, "-k", f"not ({not_these})")
    assert passed >= 70
