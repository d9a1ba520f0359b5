"""Text completions by the official client: kinds of prompt, echo, n, streams."""

from __future__ import annotations

import openai
import pytest

from api.asking import MODEL
from api.live import Live


def test_a_text(client: openai.OpenAI, live: Live) -> None:
    reply = client.completions.create(model=MODEL, prompt="ab")
    assert reply.id.startswith("cmpl-")
    assert reply.object == "text_completion"
    assert reply.system_fingerprint == live.service.fingerprint
    assert len(reply.choices[0].text) == 12
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (2, 13)
    assert live.service.requests[0].max_tokens == 16


def test_token_ids_are_the_same_prompt(client: openai.OpenAI, live: Live) -> None:
    text = client.completions.create(model=MODEL, prompt="hello é", seed=1)
    ids = client.completions.create(model=MODEL, prompt=live.service.tokenizer.ids("hello é"), seed=1)
    assert live.service.requests[0].prompt == live.service.requests[1].prompt
    assert text.choices[0].text == ids.choices[0].text


@pytest.mark.parametrize("prompt", [["ab", "cd"], [[97, 98], [99, 100]]])
def test_several_prompts(client: openai.OpenAI, live: Live, prompt: list[str] | list[list[int]]) -> None:
    reply = client.completions.create(model=MODEL, prompt=prompt, n=2, seed=5)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert [r.prompt for r in live.service.requests] == [(97, 98), (97, 98), (99, 100), (99, 100)]
    assert [r.params.seed for r in live.service.requests] == [5, 6, 5, 6]
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == 4
    assert reply.usage.completion_tokens == 4 * 13


@pytest.mark.parametrize("prompt", ["ab", [97, 98]])
def test_echo(client: openai.OpenAI, prompt: str | list[int]) -> None:
    plain = client.completions.create(model=MODEL, prompt=prompt, seed=1)
    echoed = client.completions.create(model=MODEL, prompt=prompt, seed=1, echo=True)
    assert echoed.choices[0].text == "ab" + plain.choices[0].text


def test_a_stream(client: openai.OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt=["ab", "cd"], seed=1, echo=True)
    chunks = list(
        client.completions.create(
            model=MODEL, prompt=["ab", "cd"], seed=1, echo=True, stream=True, stream_options={"include_usage": True}
        )
    )
    for index in range(2):
        mine = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(choice.text for choice in mine) == whole.choices[index].text
        assert [choice.finish_reason for choice in mine] == [*[None] * (len(mine) - 1), "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


def test_a_stop_string(client: openai.OpenAI, live: Live) -> None:
    live.service.reply = lambda _: live.service.tokenizer.ids("abSTOPcd")
    reply = client.completions.create(model=MODEL, prompt="x", stop=["TO"])
    assert reply.choices[0].text == "abS"
    assert reply.choices[0].finish_reason == "stop"
