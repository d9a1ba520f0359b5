"""One Chromium for all of the page's tests, a fresh tab and a fresh fake server for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from page.browser import Pipe, Tab, chromium, find_chromium
from page.fake_ring import Load
from page.fake_server import Fake, Script, living, serving

Show = Callable[..., Tab]
"""show(stages=2, load=Load(), ...): opens the page on a fake ring and waits until the ring is drawn."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Pipe]:
    """A running browser; skips where there is none."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium found: install one, or name it in ROPEWAY_CHROMIUM")
    with chromium(path) as pipe:
        yield pipe


@pytest.fixture
def script() -> Script:
    """What the fake answers: a ring of two stages under one stream's load."""
    return Script(living(2, Load()))


@pytest.fixture
def fake(script: Script) -> Iterator[Fake]:
    """The fake server."""
    with serving(script) as server:
        yield server


@pytest.fixture
def tab(browser: Pipe) -> Iterator[Tab]:
    """A tab of a desktop's size whose timers run twenty times faster; the page must not have complained at the end."""
    opened = Tab(browser)
    opened.size(1280, 900)
    opened.prefer("light")
    opened.hurry(20)
    with ExitStack() as stack:
        stack.callback(opened.close)
        yield opened
        assert opened.complaints() == []


@pytest.fixture
def show(tab: Tab, fake: Fake, script: Script) -> Show:
    """Opens the page."""

    def opener(stages: int = 2, load: Load | None = None, sampler: str = "first") -> Tab:
        script.ring = living(stages, load or Load(), sampler)
        tab.open(fake.url)
        tab.until(f"document.querySelectorAll('.house').length === {stages}")
        return tab

    return opener


@pytest.fixture
def module(tab: Tab, fake: Fake) -> Callable[[str], object]:
    """Evaluates an expression with the page's modules at hand: `await m('format.js')`."""
    tab.open(fake.url + "favicon.svg")
    tab.run("window.m = (name) => import('/' + name), 1")
    return tab.run
