"""Log-probabilities in both forms, whole and in streams, beside stop strings and broken characters."""

from __future__ import annotations

import openai
import pytest

from api.asking import MODEL, says
from api.byte_tokenizer import ByteTokenizer
from api.live import Live
from ropeway.api.logprobs import LOWEST, chat_logprobs
from ropeway.api.transcript import TokenNames
from ropeway.serving.service import TokenLogprob


def test_chat_logprobs(client: openai.OpenAI, live: Live) -> None:
    says(live, "hello é")
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=2
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [item.token for item in logprobs.content] == ["hello", " ", "\ufffd", "\ufffd"]
    assert b"".join(bytes(item.bytes or []) for item in logprobs.content).decode() == "hello é"
    assert all(item.logprob == -0.5 for item in logprobs.content)
    assert [len(item.top_logprobs) for item in logprobs.content] == [2, 2, 2, 2]
    assert logprobs.content[0].top_logprobs[0].token == "hello"
    assert live.service.requests[0].top_logprobs == 2


def test_logprobs_without_alternatives(live: Live) -> None:
    says(live, "ab")
    content = live.chat(logprobs=True).json["choices"][0]["logprobs"]["content"]
    assert [item["top_logprobs"] for item in content] == [[], []]
    assert live.chat().json["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("stop", [None, "OP", "STOP", "P w", " world"])
def test_streamed_logprobs_come_with_their_text(live: Live, stop: str | None) -> None:
    says(live, "abSTOP world")
    whole = live.chat(logprobs=True, stop=stop).json["choices"][0]
    chunks = live.chat(logprobs=True, stop=stop, stream=True).events[:-1]
    streamed = [
        item["token"]
        for chunk in chunks
        if chunk["choices"][0]["logprobs"]
        for item in chunk["choices"][0]["logprobs"]["content"]
    ]
    tokens = [item["token"] for item in whole["logprobs"]["content"]]
    assert streamed == tokens
    assert "".join(tokens).startswith(whole["message"]["content"])
    # No token is there that gave no text: one that the stop string cuts in two is, one that it swallows is not.
    assert len("".join(tokens[:-1])) < len(whole["message"]["content"]) or not tokens


def test_completion_logprobs(client: openai.OpenAI, live: Live) -> None:
    says(live, "hello world")
    reply = client.completions.create(model=MODEL, prompt="ab", logprobs=2)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["hello", " world"]
    assert logprobs.token_logprobs == [-0.5, -0.5]
    assert logprobs.text_offset == [0, 5]
    assert logprobs.top_logprobs is not None
    assert len(logprobs.top_logprobs[0]) == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_an_echoed_prompt_has_logprobs(live: Live, streamed: bool) -> None:
    says(live, "hello world")
    fields = {"logprobs": 0, "echo": True, "max_tokens": 1, "stream": streamed}
    reply = live.complete("ab the", **fields)
    parts = [event["choices"][0] for event in reply.events[:-1]] if streamed else reply.json["choices"]
    assert "".join(part["text"] for part in parts) == "ab thehello"
    merged = {key: [item for part in parts for item in part["logprobs"][key]] for key in parts[0]["logprobs"]}
    assert merged["tokens"] == ["a", "b", " the", "hello"]
    assert merged["token_logprobs"] == [None, -0.5, -0.5, -0.5]
    assert merged["text_offset"] == [0, 1, 2, 6]
    assert merged["top_logprobs"] == [None, {}, {}, {}]
    assert live.service.requests[0].prompt_logprobs


def test_scoring_a_text_makes_no_token(live: Live) -> None:
    reply = live.complete("ab the", logprobs=1, echo=True, max_tokens=0).json
    choice = reply["choices"][0]
    assert choice["text"] == "ab the"
    assert choice["logprobs"]["tokens"] == ["a", "b", " the"]
    assert choice["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 0


def test_no_probability_is_a_number_too() -> None:
    names = TokenNames(ByteTokenizer())
    written = chat_logprobs(names, [TokenLogprob(97, float("-inf"), ((98, float("-inf")),))])
    assert written["content"][0]["logprob"] == LOWEST
    assert written["content"][0]["top_logprobs"][0]["logprob"] == LOWEST
