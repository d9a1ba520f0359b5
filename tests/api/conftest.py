"""One server for a file's tests; its service is as new for each."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from api.fake_service import FakeService
from api.live import Live, serving


@pytest.fixture(scope="module")
def _server() -> Iterator[Live]:
    with serving(FakeService()) as live:
        yield live


@pytest.fixture
def live(_server: Live) -> Live:
    """A live server with ChatML, so tools in our own words."""
    _server.service.reset()
    return _server


@pytest.fixture
def client(live: Live) -> Iterator[openai.OpenAI]:
    """The official client, which does not try again by itself."""
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=10) as made:
        yield made
