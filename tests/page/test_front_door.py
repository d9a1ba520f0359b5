"""The page as the real front door serves it: its policy, its routes, its errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.fake_service import FakeService
from api.live import Live, serving
from page.browser import Tab
from page.fake_ring import Load, ring_at
from page.test_talk import LAST, ask, said
from ropeway.api import Settings
from ropeway.api.settings import digest


class Ringed(FakeService):
    """Has a ring to show."""

    model_id = "SmolLM2-135M-Instruct"

    def ring(self) -> dict[str, object]:
        return ring_at(3, 2, Load()) | {"state": self.state().value, "detail": ""}


@pytest.fixture
def live() -> Iterator[Live]:
    """A server that asks for a key."""
    with serving(Ringed(), Settings(api_keys=(digest("a-long-key"),))) as server:
        yield server


def test_the_page_talks_to_the_real_api(tab: Tab, live: Live) -> None:
    service = live.service
    service.reply = lambda request: list(b"hello from the ring")
    tab.open(live.url)
    tab.until("document.activeElement.id === 'key-input'")
    tab.type("a-long-key")
    tab.press("Enter")
    tab.until("document.body.dataset.state === 'ready' && document.querySelectorAll('.house').length === 2")
    assert tab.run("document.querySelector('#model').innerText").startswith(service.model_id)
    tab.run("document.querySelector('#set-max').value = '100'")
    ask(tab)
    tab.until(f"['done', 'failed'].includes({LAST}.dataset.phase)")
    assert said(tab) == "hello from the ring"
    assert tab.run(f"{LAST}.querySelector('.turn-note').innerText").startswith("20 tokens")

    service.hold_after = 5
    ask(tab)
    tab.until(f"{LAST}.querySelector('.said').textContent === 'hello'")
    service.lose_ring("rank 1 was lost")
    tab.until(f"{LAST}.dataset.phase === 'failed' && {LAST}.innerText.includes('rank 1 was lost')")
    tab.until("document.body.dataset.state === 'restarting'")
    service.hold_after = None
    tab.click(".trouble:not([hidden]) button")
    tab.until(f"{LAST}.dataset.phase === 'waiting' && {LAST}.innerText.includes('the ring is restarting')")
    service.restore()
    tab.until(f"{LAST}.dataset.phase === 'done' && document.body.dataset.state === 'ready'")
    assert said(tab) == "hello from the ring"
