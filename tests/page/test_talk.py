"""The chat: streaming, stopping, trying again, and errors that people can read."""

from __future__ import annotations

import json

import pytest

from page.browser import Tab
from page.conftest import Show
from page.fake_server import REPLY, Answer, Script, chunk, error, reply, stream

LAST = "document.querySelector('.turn:last-child')"


def ask(tab: Tab, text: str = "What is a ropeway?") -> None:
    """Types a message and sends it."""
    tab.until("!document.querySelector('#say').disabled && document.querySelector('#model').innerText")
    tab.click("#say")
    tab.type(text)
    tab.press("Enter")


def said(tab: Tab) -> str:
    """The last turn's text."""
    return str(tab.run(f"{LAST}.querySelector('.said').textContent"))


def test_a_reply_streams_in(show: Show, script: Script) -> None:
    script.chat = [reply(pause_s=0.01)]
    tab = show(2)
    ask(tab)
    tab.until(f"{LAST}.dataset.phase === 'replying' && {LAST}.querySelector('.said').textContent.length < 150")
    tab.until(f"{LAST}.dataset.phase === 'done'")
    assert said(tab).split() == REPLY.split()
    note = tab.run(f"{LAST}.querySelector('.turn-note').innerText")
    assert note.startswith("36 tokens, ")
    assert note.endswith("prompt of 31, 16 of them cached")
    assert tab.run("document.querySelector('#chat-status').textContent").startswith("Reply: A ropeway carries")
    sent = script.chats[0]
    assert sent["model"] == "SmolLM2-135M-Instruct"
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["messages"] == [{"role": "user", "content": "What is a ropeway?"}]
    assert (sent["temperature"], sent["max_tokens"]) == (0.7, 512)
    assert tab.run("document.activeElement.id") == "say"


def test_the_conversation_and_the_settings_go_along(show: Show, script: Script) -> None:
    script.chat = [reply("One."), reply("Two.")]
    tab = show(2)
    tab.click(".settings summary")
    tab.click("#set-system")
    tab.type("Be brief.")
    tab.run("document.querySelector('#set-temperature').value = ''")
    ask(tab, "first")
    tab.until(f"{LAST}.dataset.phase === 'done'")
    tab.press("Enter", shift=True)
    ask(tab, "second")
    tab.until("document.querySelectorAll('.turn').length === 4 && " + f"{LAST}.dataset.phase === 'done'")
    assert [(each["role"], each["content"].strip()) for each in script.chats[1]["messages"]] == [
        ("system", "Be brief."), ("user", "first"), ("assistant", "One."), ("user", "second"),
    ]  # fmt: skip
    assert "temperature" not in script.chats[1]
    tab.click("#chat-new")
    assert tab.run("document.querySelectorAll('.turn').length") == 0


@pytest.mark.parametrize("how", ["#stop", "Escape"])
def test_a_reply_can_be_stopped(show: Show, script: Script, how: str) -> None:
    script.chat = [reply("word " * 2000, pause_s=0.01)]
    tab = show(2)
    ask(tab)
    tab.until(f"{LAST}.dataset.phase === 'replying'")
    if how == "Escape":
        tab.press("Escape")
    else:
        tab.click(how)
    tab.until(f"{LAST}.dataset.phase === 'stopped'")
    assert script.hung_up.wait(10)
    assert tab.run("document.activeElement.id") == "say"
    assert tab.run(f"{LAST}.querySelector('.turn-note').innerText").startswith("Stopped by you; ")


def test_what_a_model_says_is_text(show: Show, script: Script) -> None:
    evil = '<img src=x onerror="document.title=1"><script>alert(1)</script>**bold**'
    script.chat = [reply(evil)]
    tab = show(2)
    ask(tab, "<b>hi</b>")
    tab.until(f"{LAST}.dataset.phase === 'done'")
    assert said(tab).strip() == evil
    assert tab.run("document.querySelectorAll('.turns img, .turns script, .turns b').length") == 0


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_says_later_is_asked_again(show: Show, script: Script, status: int) -> None:
    script.chat = [error(status, "come back", Retry_After="40"), reply("Here I am.")]
    tab = show(2)
    ask(tab)
    title = {429: "The queue is full.", 503: "The ring is not whole just now."}[status]
    tab.until(f"{LAST}.innerText.includes({json.dumps(title)}) && {LAST}.innerText.includes('come back')")
    tab.until(f"/Trying again in [1-3]\\d seconds/.test({LAST}.innerText)")
    tab.until(f"{LAST}.dataset.phase === 'done'")
    assert said(tab).strip() == "Here I am."
    assert tab.run(f"{LAST}.querySelector('.trouble').hidden")
    assert len(script.chats) == 2


def test_waiting_can_be_cut_short_or_given_up(show: Show, script: Script) -> None:
    script.chat = [error(503, "later", Retry_After="60"), error(503, "later", Retry_After="60"), reply("Now.")]
    tab = show(2)
    ask(tab)
    tab.until(f"{LAST}.dataset.phase === 'waiting'")
    tab.click(".trouble .button")
    tab.until(f"{LAST}.dataset.phase === 'waiting' && {LAST}.innerText.includes('Trying again in 60 seconds')")
    tab.click("#stop")
    tab.until(f"{LAST}.dataset.phase === 'stopped'")
    assert tab.run(f"{LAST}.querySelector('.trouble').hidden")


@pytest.mark.parametrize(
    ("answer", "title", "detail", "again"),
    [
        (error(400, "messages: too long"), "The server refused this request.", "messages: too long", False),
        (Answer((b"<h1>Bad gateway</h1>",), 502), "The server failed.", "HTTP 502", False),
        (stream(chunk("Half a "), b'data: {"error": {"message": "rank 1 was lost"}}\n\n'), "The reply was cut short.",
         "rank 1 was lost", True),
        (stream(chunk("Half a "), pause_s=0.3, cut=True), "The reply was cut short.", "The connection to the", True),
        (stream(chunk("Half a ")), "The reply was cut short.", "The connection ended before the reply did.", True),
        (stream(b"data: {nonsense\n\n", chunk("Half a ")), "The reply was cut short.", "ended before", True),
    ],
)  # fmt: skip
def test_errors_can_be_read(show: Show, script: Script, answer: Answer, title: str, detail: str, again: bool) -> None:
    script.chat = [answer, reply("Whole.")]
    tab = show(2)
    ask(tab)
    tab.until(f"{LAST}.dataset.phase === 'failed'")
    shown = tab.run(f"{LAST}.innerText")
    assert title in shown
    assert detail in shown
    assert title in tab.run("document.querySelector('#chat-status').textContent")
    assert tab.run(f"{LAST}.querySelectorAll('.trouble button').length") == int(again)
    if again:
        assert said(tab) == "Half a "
        tab.click(".trouble button")
        tab.until(f"{LAST}.dataset.phase === 'done'")
        assert said(tab).strip() == "Whole."
        assert script.chats[1]["messages"] == script.chats[0]["messages"]


def test_a_key_that_is_asked_for_late(show: Show, script: Script) -> None:
    tab = show(2)
    tab.until("document.querySelector('#model').innerText")
    script.key = "right-key"
    ask(tab)
    tab.until(f"{LAST}.dataset.phase === 'failed' && {LAST}.innerText.includes('The server asks for an API key.')")
    tab.until("document.activeElement.id === 'key-input'")
    tab.type("right-key")
    tab.press("Enter")
    tab.until(f"{LAST}.dataset.phase === 'done'")
    assert tab.run("document.querySelectorAll('.turn').length") == 2
