"""The page for everyone: contrast, names, the keyboard, live regions."""

from __future__ import annotations

from typing import Any

import pytest

from page.browser import Tab
from page.conftest import Show
from page.fake_ring import Load, ring_at
from page.fake_server import Answer, Script, say_json

FAINT = """(() => {
    const channels = (colour) => {
        const pad = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        pad.fillStyle = colour; pad.fillRect(0, 0, 1, 1);
        return pad.getImageData(0, 0, 1, 1).data;
    };
    const light = (colour) => {
        const [r, g, b] = [...channels(colour)].slice(0, 3).map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (channels(colour)[3] === 255) return colour;
        }
        return 'white';
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = new Set();
    while (texts.nextNode()) {
        const node = texts.currentNode.parentElement;
        const box = node.getBoundingClientRect();
        if (!texts.currentNode.data.trim() || !box.width || node.closest('svg, noscript, .unseen, :disabled')) continue;
        const style = getComputedStyle(node);
        const [a, b] = [light(style.color), light(ground(node))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) found.add(`${node.className || node.tagName} ${ratio.toFixed(2)}`);
    }
    return [...found];
})()"""
TOKENS = """((pairs) => pairs.map(([a, b]) => {
    const root = getComputedStyle(document.documentElement);
    return [root.getPropertyValue(a).trim(), root.getPropertyValue(b).trim()];
}))"""
DRAWN = [
    ("--warm", "--paper"),
    ("--send", "--paper"),
    ("--wait", "--paper"),
    ("--rope", "--paper"),
    ("--good", "--paper"),
]
"""Pairs of colours that carry meaning in drawings: at least 3 to 1 (WCAG 2.2, 1.4.11)."""


def luminance(colour: str) -> float:
    """Of #rrggbb, after WCAG 2.2."""
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_drawings_stand_out(tab: Tab, show: Show, script: Script, scheme: str) -> None:
    tab.prefer(scheme, "reduce")
    show(3, Load(streams=12))
    tab.until("document.querySelector('.lanes .bar')")
    assert tab.run(FAINT) == []
    for state in ("starting", "failed"):
        script.ring = lambda state=state: say_json(ring_at(1, 3) | {"state": state, "detail": "why"})  # type: ignore[misc]
        tab.until(f"document.body.dataset.state === '{state}'")
        assert tab.run(FAINT) == []
    script.ring = lambda: Answer((), cut=True)
    tab.until("document.body.dataset.state === 'gone'")
    assert tab.run(FAINT) == []
    for one, other in tab.run(f"{TOKENS}({[list(pair) for pair in DRAWN]})"):
        bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 3, (one, other)


def test_everything_that_can_be_used_has_a_name(show: Show) -> None:
    tab = show(3, Load(streams=3))
    tab.until("document.querySelector('.lanes .bar')")
    tab.click(".settings summary")
    nodes: list[dict[str, Any]] = tab.call("Accessibility.getFullAXTree")["nodes"]
    seen = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    usable = {"button", "textbox", "spinbutton", "radio", "link", "image", "log", "region", "form", "table"}
    assert [role for role, name in seen if role in usable and not name.strip()] == []
    roles = [role for role, _ in seen]
    for landmark in ("banner", "main", "contentinfo", "log", "status", "table", "image"):
        assert landmark in roles
    assert next(name for role, name in seen if role == "heading") == "Ropeway"


def test_the_keyboard_reaches_everything(show: Show) -> None:
    tab = show(2)
    tab.until("document.querySelector('.lanes .bar')")
    order = []
    for _ in range(16):
        tab.press("Tab")
        order.append(
            tab.run("((e) => e.id || e.getAttribute('aria-label') || e.type || e.textContent)(document.activeElement)")
        )
        ring = tab.run(
            "getComputedStyle(document.activeElement.matches('input[type=radio]') ? "
            "document.activeElement.nextElementSibling : document.activeElement).outlineStyle"
        )
        assert ring != "none", order[-1]
        if order[-1] == "Metrics":
            break
    assert order == [
        "Skip to the chat", "log", "say", "Settings", "radio", "Zoom in",
        "Timeline, scrolls sideways when zoomed", "Ring as JSON", "Metrics",
    ]  # fmt: skip


def test_the_skip_link_leads_to_the_chat(show: Show) -> None:
    tab = show(2)
    tab.press("Tab")
    tab.press("Enter")
    tab.until("document.activeElement.id === 'say'")


def test_what_happens_is_said(show: Show) -> None:
    tab = show(2)
    live = tab.run(
        "[...document.querySelectorAll('[role=alert], [role=status], [role=log]')].map((e) => e.getAttribute('role'))"
    )
    assert sorted(live) == ["alert", "log", "status"]
    assert tab.run("document.querySelector('#log').getAttribute('aria-live')") == "off"
