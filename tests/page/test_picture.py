"""The ring on the page: stations, boards, cabins, and what shows that all is not well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from page.browser import Tab
from page.conftest import Show
from page.fake_ring import IDLE, Load, ring_at
from page.fake_server import Fake, Script, say_json

PLACES = "JSON.stringify([...document.querySelectorAll('.cabin')].map((each) => each.getAttribute('transform')))"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
DRAWN = "((scene) => Math.abs(scene.clientWidth - scene.viewBox.baseVal.width) <= 1)(document.querySelector('#scene'))"
BEYOND = """[...document.querySelectorAll('main *, header *, footer *')].filter((each) => {
    if (each.closest('svg, .lane-scroll, .recent, .unseen')) return false;
    const box = each.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map((each) => each.className)"""


@pytest.mark.parametrize("stages", [1, 2, 3, 6, 12])
def test_every_number_of_stages_fits_every_width(tab: Tab, show: Show, stages: int) -> None:
    show(stages, Load(streams=3, rows=3))
    for width in (1280, 768, 360):
        tab.size(width, 800, mobile=width < 500)
        view = "across" if width / stages >= 98 and width >= 700 else "down"
        tab.until(f"innerWidth === {width} && document.querySelector('#picture').dataset.view === '{view}'")
        tab.until("document.querySelectorAll('.cabin').length === 1")
        tab.until(DRAWN)
        assert tab.run(OVERFLOW) <= 0
        assert tab.run(BEYOND) == []
    boards = tab.run("[...document.querySelectorAll('.board')].map((each) => each.innerText)")
    assert len(boards) == stages
    assert all(f"Rank {rank}" in board for rank, board in enumerate(boards))


def test_a_board_says_what_its_stage_holds_and_does(show: Show) -> None:
    tab = show(3, Load(streams=2))
    board = tab.run("document.querySelectorAll('.board')[1].innerText").split("\n")
    for words in ("Rank 1", "Layers 10..20", "llamacpp on metal", "31 MB of weights", "studio.local:7400"):
        assert words in board
    assert any(word in board for word in ("waiting", "computing", "sending"))
    label = tab.run("document.querySelector('#scene').getAttribute('aria-label')")
    assert label.startswith("A ropeway with 3 stations: rows go from rank 0 to rank 2")


def test_a_board_says_where_its_stages_time_went(show: Show, script: Script) -> None:
    tab = show(2)
    ring: dict[str, Any] = ring_at(3, 2)
    ring["stages"][1]["shares"] |= {"forward": 0.47, "wire": 0.06, "waiting": 0.4}
    script.ring = lambda: say_json(ring)
    spent = "document.querySelectorAll('.spent')[1].innerText"
    tab.until(f"{spent} === '47 % busy, 6 % wire, 40 % waiting'")
    bar = "document.querySelectorAll('.shares')[1]"
    assert tab.run(f"{bar}.getAttribute('aria-label')") == "Of the last seconds: 47 % busy, 6 % wire, 40 % waiting"
    assert tab.run(f"[...{bar}.children].map((part) => [part.dataset.kind, part.style.inlineSize])") == [
        ["forward", "47%"], ["wire", "6%"], ["waiting", "40%"],
    ]  # fmt: skip
    script.ring = lambda: say_json(ring | {"state": "restarting"})
    tab.until(f"{spent} === ''")


def test_cabins_move_while_rounds_are_made_and_say_how_slowly(show: Show) -> None:
    tab = show(3, Load(streams=2, parts=4, rows=1024, per_s=20))
    tab.until("document.querySelectorAll('.cabin').length === 4")
    before = tab.run(PLACES)
    tab.until(f"{PLACES} !== {json.dumps(before)}")
    assert tab.run("document.querySelector('.cargo').textContent") == "256"
    assert "the last of 1,024 rows in 4 parts. Shown 100 times slower." in tab.run("document.body.innerText")


def test_cabins_rest_when_the_ring_is_idle(show: Show) -> None:
    tab = show(2, IDLE)
    assert tab.until("document.querySelector('#pace').innerText") == "Idle: no round is under way."
    assert tab.run("document.querySelectorAll('.cabin').length") == 0


def test_nothing_moves_for_readers_who_prefer_it(tab: Tab, show: Show) -> None:
    tab.prefer("light", "reduce")
    show(2, Load())
    tab.until("document.querySelector('#pace').innerText.includes('rounds a second')")
    assert tab.run("document.querySelector('#scene').dataset.moving") == "no"
    assert tab.run("document.querySelectorAll('.cabin').length") == 0
    assert tab.run("document.getAnimations().length") == 0
    tab.prefer("light")
    tab.until("document.querySelectorAll('.cabin').length === 1")


def test_with_the_sampler_last_a_token_comes_back(show: Show) -> None:
    tab = show(2, Load(per_s=1000), sampler="last")
    tab.until("document.querySelector('.cabin[data-load=token]')")
    assert "the token comes back to rank 0" in tab.run("document.querySelector('#scene').getAttribute('aria-label')")


@pytest.mark.parametrize(
    ("state", "title", "word", "tone"),
    [
        ("starting", "The ring is starting.", "Starting", "warn"),
        ("restarting", "The ring is not whole and is being restarted.", "Restarting", "bad"),
        ("draining", "The ring is draining.", "Draining", "warn"),
        ("failed", "The ring has failed.", "Failed", "bad"),
        ("on fire", "The ring is in a state that this page does not know.", "Unknown", "warn"),
    ],
)
def test_a_ring_that_is_not_ready_says_so(
    show: Show, script: Script, state: str, title: str, word: str, tone: str
) -> None:
    tab = show(3)
    script.ring = lambda: say_json(ring_at(9, 3) | {"state": state, "detail": "rank 1 lost: <b>peer_lost</b>"})
    tab.until(f"document.querySelector('#notice [role=alert]').innerText.includes({json.dumps(title)})")
    assert tab.run("document.querySelector('#notice').dataset.tone") == tone
    assert tab.run("document.querySelector('#state-word').innerText") == word
    assert tab.run("document.querySelector('.notice-detail').textContent") == "rank 1 lost: <b>peer_lost</b>"
    assert tab.run("document.title") == f"{word} – Ropeway"
    moving = tab.run("document.querySelector('#scene').dataset.moving")
    assert moving == ("yes" if state == "draining" else "no")
    script.ring = lambda: say_json(ring_at(10, 3))
    tab.until("document.querySelector('#notice').hidden")


def test_a_ring_without_stages_is_drawn_once_it_has_some(show: Show, script: Script) -> None:
    tab = show(0)
    script.ring = lambda: say_json(ring_at(1, 0) | {"state": "starting"})
    tab.until("document.querySelector('#scene').getAttribute('aria-label') === 'The ring has no stations yet'")
    for stages in (2, 5, 1, 3):
        script.ring = lambda stages=stages: say_json(ring_at(2, stages))  # type: ignore[misc]
        tab.until(f"document.querySelectorAll('.house').length === {stages}")
        assert tab.run("document.querySelectorAll('.board').length") == stages


def test_hundreds_of_streams_are_summed_up(show: Show) -> None:
    tab = show(2, Load(streams=400, waiting=390))
    tab.until("document.querySelectorAll('.stream').length === 8")
    assert tab.run("document.querySelector('#streams-count').innerText") == "6 decoding, 2 entering, 392 waiting"
    assert "and 392 more streams" in tab.run("document.querySelector('.streams').innerText")


def test_figures(show: Show, script: Script) -> None:
    tab = show(2)
    ring: dict[str, Any] = ring_at(3, 2, Load(streams=3))
    ring["throughput"] = {"tokens_per_s": 61.2, "prompt_tokens_per_s": 240}
    ring["overlap"] = {"at_work": 1.62, "possible": 1.78, "efficiency": 0.91}
    ring["prediction"] = {"measured_ms": 21.5, "predicted_ms": 16.2, "cause": "rank 1 (old) takes 1.60 times as long"}
    script.ring = lambda: say_json(ring)
    tab.until("document.querySelector('[data-figure=tokens] .value').innerText === '61'")
    figures = tab.run(
        "Object.fromEntries([...document.querySelectorAll('.figure')].map((f) => [f.dataset.figure, f.innerText]))"
    )
    assert "240" in figures["prompt"]
    assert "22 ms a token, 16.2 ms predicted: rank 1 (old) takes 1.60 times as long" in figures["tokens"]
    assert "1.6 stages at work, 91\u00a0% of the ideal" in figures["rounds"]
    assert "0.4 ms on the wire" in figures["rounds"]
    ring["round"]["wire_ms"] = None
    tab.until("!document.querySelector('[data-figure=rounds]').innerText.includes('on the wire')")
    assert "3" in figures["slots"]
    assert "of 8" in figures["slots"]
    assert "61 %" in figures["cache"]
    assert "14 of 23, 21,460 tokens spared" in figures["cache"]
    assert tab.run("document.querySelectorAll('.pip[data-on=yes]').length") == 3
    assert "now 61" in tab.run("document.querySelector('.spark').getAttribute('aria-label')")


def test_of_an_idle_ring_no_overlap_is_told(show: Show) -> None:
    tab = show(2, IDLE)
    tab.until("document.querySelector('[data-figure=rounds] .value').innerText === '0'")
    assert "at work" not in tab.run("document.querySelector('[data-figure=rounds]').innerText")


def test_nothing_is_fetched_from_elsewhere(tab: Tab, show: Show, fake: Fake) -> None:
    show(2)
    names = tab.run("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(names) > 20
    assert all(name.startswith(fake.url) for name in names)
