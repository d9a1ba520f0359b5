"""The timeline of a finished request."""

from __future__ import annotations

from typing import Any

from page.conftest import Show
from page.fake_ring import finished, ring_at
from page.fake_server import Script, say_json


def test_a_line_a_stage_and_a_table(show: Show) -> None:
    tab = show(3)
    tab.until("document.querySelectorAll('.lanes .bar').length === 9")
    assert tab.run("[...document.querySelectorAll('.lane-name')].map((each) => each.innerText).filter(Boolean)") == [
        "Rank 0", "Rank 1", "Rank 2",
    ]  # fmt: skip
    request = finished(11, 3, 40)
    forward = sum(end - start for kind, start, end in request["timeline"]["stages"][1]["spans"] if kind == "forward")
    row = tab.run("document.querySelectorAll('.sums tbody tr')[1].innerText")
    assert f"{forward:.0f} ms" in row
    assert f"{100 * forward / request['total_ms']:.0f} %" in row
    assert "620 prompt tokens; first token after" in tab.run("document.querySelector('#timeline-aside').innerText")


def test_the_newest_is_shown_until_one_is_picked(show: Show, script: Script) -> None:
    tab = show(2)
    checked = "document.querySelector('#recent input:checked')?.value"
    tab.until(f"{checked} === '11'")
    recent: list[Any] = [finished(at, 2, 20) for at in (12, 11, 10)]
    script.ring = lambda: say_json(ring_at(1, 2) | {"recent": recent})
    tab.until(f"{checked} === '12'")
    tab.run("document.querySelector('#recent input:checked').focus()")
    tab.press("ArrowRight")
    tab.until(
        f"{checked} === '11' && document.querySelector('.lanes').getAttribute('aria-label').startsWith('Request 11,')"
    )
    recent.insert(0, finished(13, 2, 20))
    tab.until("document.querySelectorAll('#recent label').length === 4")
    assert tab.run(checked) == "11"
    assert tab.run("document.activeElement.value") == "11"
    del recent[1:]
    tab.until(f"{checked} === '13' && document.querySelectorAll('#recent label').length === 1")


def test_zoom(show: Show) -> None:
    tab = show(2)
    tab.until("document.querySelector('.lanes .bar')")
    width = tab.run("document.querySelector('.lanes').clientWidth")
    assert tab.run("document.querySelector('[aria-label=\"Zoom out\"]').disabled")
    tab.click("[aria-label='Zoom in']")
    tab.until(f"Math.abs(document.querySelector('.lanes').clientWidth - {2 * width}) <= 1")
    tab.click("[aria-label='Zoom out']")
    tab.until(f"document.querySelector('.lanes').clientWidth === {width}")


def test_a_long_request_is_drawn_at_once(show: Show, script: Script) -> None:
    tab = show(2)
    long = finished(99, 12, 1500)
    script.ring = lambda: say_json(ring_at(1, 12) | {"recent": [long]})
    tab.until("document.querySelectorAll('.lanes .bar').length === 36")
    assert tab.run("document.querySelectorAll('.lanes *').length") < 200


def test_without_timelines(show: Show, script: Script) -> None:
    tab = show(2)
    bare = {key: value for key, value in finished(7, 2, 5).items() if key != "timeline"}
    script.ring = lambda: say_json(ring_at(1, 2) | {"recent": [bare]})
    tab.until("document.querySelector('#recent input').value === '7'")
    script.ring = lambda: say_json(ring_at(1, 2) | {"recent": []})
    tab.until("document.querySelector('#timeline').innerText === 'No request has finished yet.'")
