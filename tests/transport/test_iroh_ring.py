"""The ring's own tests, run again with every rank behind a node of its own and iroh between them."""

from __future__ import annotations

import pytest

from namespaces import pytest_in_namespace

pytest.importorskip("iroh", reason="the iroh extra is not installed")

LIMIT_S = 270.0
"""For all of them together; some 70 rings, on a machine that may be busy."""
TCPS_OWN = (
    "a_rank_that_listens_late",  # at an address
    "ipv6_and_host_names",
    "a_wildcard_is_refused",
)


@pytest.mark.timeout(LIMIT_S + 10)
def test_the_rings_tests_pass_over_iroh() -> None:
    not_these = " or ".join(TCPS_OWN)
    files = ("tests/transport/test_ring.py", "tests/transport/test_faults.py")
    passed = pytest_in_namespace("-p", "transport.over_iroh", *files, "-k", f"not ({not_these})", limit_s=LIMIT_S)
    assert passed >= 70
