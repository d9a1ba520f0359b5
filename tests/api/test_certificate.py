"""A reply bears the certificate's id where the placement that made it is the one that was certified."""

from __future__ import annotations

import pytest

from api.fake_service import FakeService
from api.live import serving
from ropeway.api import Settings

HEADER = "x-ropeway-certificate"


@pytest.mark.parametrize(
    ("certified", "expected"), [(FakeService.fingerprint, "0123456789abcdef"), ("rw-another", None)]
)
def test_the_id_goes_with_the_placement(certified: str, expected: str | None) -> None:
    with serving(FakeService(), Settings(certificate="0123456789abcdef", certified=certified)) as live:
        for path in ("/v1/models", "/v1/nothing"):
            assert live.ask("GET", path).headers.get(HEADER) == expected


def test_no_certificate_no_header() -> None:
    with serving(FakeService(), Settings()) as live:
        assert HEADER not in live.ask("GET", "/v1/models").headers
