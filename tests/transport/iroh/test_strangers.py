"""Who is not let in over iroh: `strangers_cases.py`, in a network namespace."""

from __future__ import annotations

import pytest

from namespaces import pytest_in_namespace

pytest.importorskip("iroh", reason="the iroh extra is not installed")


def test_strangers_in_a_namespace() -> None:
    assert pytest_in_namespace("tests/transport/iroh/strangers_cases.py") >= 11
