"""The server goes, answers nonsense, or asks for a key."""

from __future__ import annotations

from typing import Any

import pytest

from page.conftest import Show
from page.fake_ring import ring_at
from page.fake_server import Answer, Script, error, say_json
from page.test_modules import bent


def test_a_server_that_goes_and_comes_back(show: Show, script: Script) -> None:
    tab = show(2)
    script.ring = lambda: Answer((), cut=True)
    tab.until("document.querySelector('#notice').innerText.includes('The server does not answer.')")
    count = "/Last heard \\d.* ago\\. Trying (again in \\d+ seconds?|now)\\./"
    tab.until(f"{count}.test(document.querySelector('#notice').innerText)")
    assert tab.run("document.querySelector('#scene').dataset.moving") == "no"
    assert tab.run("document.querySelectorAll('.board').length") == 2
    assert "not known" in tab.run("document.querySelector('.board').innerText")
    script.ring = lambda: say_json(ring_at(3, 2))
    tab.click("#notice button")
    tab.until("document.querySelector('#notice').hidden && document.querySelector('#scene').dataset.moving === 'yes'")


def test_a_server_that_is_not_there_at_first(show: Show, script: Script) -> None:
    tab = show(2)
    script.ring = lambda: Answer((), cut=True)
    tab.call("Page.reload")
    tab.until("document.body.dataset.state === 'gone' && document.querySelector('#send').disabled")
    script.ring = lambda: say_json(ring_at(3, 3))
    tab.until("document.querySelectorAll('.house').length === 3")


@pytest.mark.parametrize("body", [b'{"state": "rea', b"", b"[]", b"<html>", b"null"])
def test_an_answer_that_cannot_be_read(show: Show, script: Script, body: bytes) -> None:
    tab = show(2)
    script.ring = lambda: Answer((body,))
    tab.until("document.body.dataset.state === 'unreadable'")
    assert tab.run("document.querySelectorAll('.board').length") == 2
    script.ring = lambda: say_json(ring_at(3, 2))
    tab.until("document.body.dataset.state === 'ready'")


def test_an_answer_that_is_an_error(show: Show, script: Script) -> None:
    tab = show(2)
    script.ring = lambda: error(500, "boom")
    tab.until("document.querySelector('#notice').innerText.includes('HTTP 500')")


def test_no_ring_breaks_the_page(show: Show, script: Script) -> None:
    """Sixty bent rings one after the other; the tab's fixture holds the page to silence."""
    tab = show(2)
    rings: list[Any] = [bent(seed) for seed in range(60)]
    rings = [ring for ring in rings if isinstance(ring, dict)]
    left = iter(rings)
    script.ring = lambda: say_json(next(left, ring_at(1, 5)))
    tab.until("document.body.dataset.state === 'ready' && document.querySelectorAll('.house').length === 5")
    tab.until("document.querySelectorAll('.lanes .bar').length === 15")
    assert next(left, None) is None


def test_a_server_that_asks_for_a_key(show: Show, script: Script) -> None:
    tab = show(2)
    script.key = "right-key"
    tab.until("document.activeElement.id === 'key-input'")
    assert tab.run("document.querySelector('#key-label').innerText") == "This server asks for an API key."
    tab.type("wrong-key")
    tab.press("Enter")
    tab.until("document.querySelector('#key-label').innerText === 'The server does not accept this API key.'")
    tab.until("document.activeElement.id === 'key-input'")
    tab.type("schlüssel")
    tab.press("Enter")
    tab.until("document.querySelector('#key-label').innerText.startsWith('An API key has plain letters')")
    tab.type("right-key")
    tab.press("Enter")
    tab.until("document.body.dataset.state === 'ready' && document.querySelector('#key-form').hidden")
    kept = "JSON.stringify([localStorage, sessionStorage, document.cookie, document.documentElement.outerHTML])"
    assert "right-key" not in tab.run(kept)
    tab.click("#key-forget")
    tab.until("document.body.dataset.state === 'key' && !document.querySelector('#key-form').hidden")
