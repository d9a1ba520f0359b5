"""The served OpenAPI document, and that no request that it allows, or almost allows, is a 500."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.fake_service import FakeService
from api.live import Live, serving
from ropeway.api.routes import ROUTES, Described


@pytest.fixture(scope="module")
def served() -> Iterator[Live]:
    """A server of its own: what is asked here comes in any order."""
    with serving(FakeService()) as live:
        yield live


@pytest.fixture(scope="module")
def document(served: Live) -> Any:
    """Its OpenAPI document."""
    return served.ask("GET", "/openapi.json").json


def test_every_route_is_described(document: Any) -> None:
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert described == {(route.method, route.path) for route in ROUTES}
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/ChatBody")
    assert chat["responses"]["429"]["headers"]["Retry-After"]


def test_every_reference_is_there(document: Any) -> None:
    schemas = document["components"]["schemas"]
    left: list[Any] = [document]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if isinstance(reference := value.get("$ref"), str):
                assert reference.removeprefix("#/components/schemas/") in schemas
            left += value.values()
        elif isinstance(value, list):
            left += value


CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
ASKED = [
    (route, mode)
    for route in ROUTES
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    if route.body is not None or mode is GenerationMode.POSITIVE
]
"""What takes a body is asked with bodies that its schema forbids as well."""


@pytest.mark.parametrize(("route", "mode"), ASKED, ids=lambda it: getattr(it, "path", None) or str(it.value))
def test_no_request_is_a_500(served: Live, document: Any, route: Described, mode: GenerationMode) -> None:
    operation = schemathesis.openapi.from_dict(document)[route.path][route.method]

    @settings(
        max_examples=30 if route.body is not None else 3,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case[Any]) -> None:
        if isinstance(case.body, dict) and case.body.get("model") is not None and mode is GenerationMode.POSITIVE:
            case.body["model"] = served.service.model_id  # else every request would end with a 404
        case.validate_response(case.call(base_url=served.url), checks=list(CHECKS))

    check()
