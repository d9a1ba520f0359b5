"""Chat by the official client: shapes, streams, finish reasons, stop strings, n, seeds, usage."""

from __future__ import annotations

import openai
import pytest

from api.asking import MODEL, ask, says, stream, text_of
from api.byte_tokenizer import FIRST_WORD, WORDS
from api.live import Live
from ropeway.serving.sequence import Finish
from ropeway.serving.service import GenerateRequest


def test_a_whole_reply(client: openai.OpenAI, live: Live) -> None:
    says(live, "hello world")
    live.service.cached = 5
    reply = ask(client)
    assert reply.id.startswith("chatcmpl-")
    assert reply.object == "chat.completion"
    assert reply.model == MODEL
    assert reply.system_fingerprint == live.service.fingerprint
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content == "hello world"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.choices[0].message.tool_calls is None
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == len(live.service.requests[0].prompt)
    assert reply.usage.completion_tokens == 3  # two words and the end token
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 3
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 5


def test_the_template_makes_the_prompt(client: openai.OpenAI, live: Live) -> None:
    client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ],
    )
    wanted = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"
    assert list(live.service.requests[0].prompt) == live.service.tokenizer.ids(wanted)


def test_a_stream_has_the_shape_of_openai(live: Live) -> None:
    says(live, "hello world")
    *chunks, done = live.chat(stream=True).events
    assert done == "[DONE]"
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "hello"},
        {"content": " world"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    for chunk in chunks:
        assert set(chunk) == {"id", "object", "created", "model", "system_fingerprint", "choices"}
        assert chunk["object"] == "chat.completion.chunk"
        assert set(chunk["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"}


def test_a_stream_says_what_the_whole_reply_says(client: openai.OpenAI) -> None:
    whole = ask(client, "the same", seed=4)
    chunks = list(stream(client, "the same", seed=4, stream_options={"include_usage": True}))
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_length_is_a_finish_reason(client: openai.OpenAI) -> None:
    for reply in (ask(client, max_tokens=5), ask(client, max_completion_tokens=5)):
        assert reply.choices[0].finish_reason == "length"
        assert len(reply.choices[0].message.content or "") == 5
        assert reply.usage is not None
        assert reply.usage.completion_tokens == 5


def test_a_reply_may_fill_the_context_and_no_more(client: openai.OpenAI, live: Live) -> None:
    ask(client)
    ask(client, max_tokens=100_000)
    for request in live.service.requests:
        assert request.max_tokens == live.service.context - len(request.prompt)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("said", "stop", "shown"),
    [
        ("abSTOPcd", "STOP", "ab"),
        ("abSTOPcd", ["x", "STOP"], "ab"),
        ("abSTOPcd", ["TOPc", "OP"], "abST"),
        ("STOP", "STOP", ""),
        ("abST", "STOP", "abST"),
        ("aSTaSTOP", "STOP", "aSTa"),
        ("né STOP", " ST", "né"),
        ("ab", "b", "a"),
    ],
)
def test_stop_strings_never_leak(
    client: openai.OpenAI, live: Live, said: str, stop: str | list[str], shown: str, streamed: bool
) -> None:
    says(live, said)
    if streamed:
        chunks = list(stream(client, stop=stop))
        assert text_of(chunks) == shown
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    else:
        reply = ask(client, stop=stop)
        assert reply.choices[0].message.content == shown
        assert reply.choices[0].finish_reason == "stop"


def test_a_stop_string_ends_the_sequence(client: openai.OpenAI, live: Live) -> None:
    says(live, "ab" + "STOP" + "c" * 100)
    live.service.hold_after = 4
    reply = ask(client, stop="STOP")
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 4
    assert [finish for _, finish in live.service.ended] == [Finish.STOP]


def test_characters_are_never_split(client: openai.OpenAI, live: Live) -> None:
    says(live, "é漢🚡")
    pieces = [c.choices[0].delta.content for c in stream(client)]
    assert [piece for piece in pieces if piece] == ["é", "漢", "🚡"]
    assert ask(client, max_tokens=3).choices[0].message.content == "é\ufffd"


def test_n_choices_have_seeds_of_their_own(client: openai.OpenAI, live: Live) -> None:
    reply = ask(client, n=3, seed=7)
    assert [request.params.seed for request in live.service.requests] == [7, 8, 9]
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in reply.choices]
    assert len(set(texts)) == 3
    assert texts[1] == ask(client, seed=8).choices[0].message.content
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == len(live.service.requests[0].prompt)
    assert reply.usage.completion_tokens == 3 * 13
    chunks = list(stream(client, n=3, seed=7))
    assert [text_of(chunks, index) for index in range(3)] == texts
    for index in range(3):
        mine = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert mine[0].delta.role == "assistant"
        assert [c.finish_reason for c in mine][-1] == "stop"
        assert all(c.finish_reason is None for c in mine[:-1])


def test_seeds(client: openai.OpenAI, live: Live) -> None:
    ask(client, seed=-1)
    ask(client)
    ask(client)
    seeds = [request.params.seed for request in live.service.requests]
    assert seeds[0] == (1 << 64) - 1
    assert len(set(seeds)) == 3


def test_all_fields_reach_the_sampler(client: openai.OpenAI, live: Live) -> None:
    ask(
        client,
        temperature=0.5,
        top_p=0.9,
        presence_penalty=0.1,
        frequency_penalty=-0.2,
        logit_bias={"5": -100, "7": 1.5},
        max_tokens=9,
        extra_body={"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1},
    )
    request = live.service.requests[0]
    params = request.params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 40, 0.05)
    assert (request.penalties.presence, request.penalties.frequency, request.penalties.repetition) == (0.1, -0.2, 1.1)
    assert request.logit_bias == {5: -100, 7: 1.5}
    assert request.max_tokens == 9
    assert request.stop_ids == live.service.tokenizer.end_tokens


def test_defaults_are_those_of_openai(client: openai.OpenAI, live: Live) -> None:
    ask(client)
    request = live.service.requests[0]
    assert (request.params.temperature, request.params.top_p) == (1.0, 1.0)
    assert (request.params.top_k, request.params.min_p, request.top_logprobs) == (0, 0.0, None)


def test_fields_without_effect_are_taken(client: openai.OpenAI) -> None:
    ask(client, user="me", metadata={"a": "b"}, store=False, service_tier="auto", modalities=["text"])
    ask(client, frequency_penalty=None, stop=None, tools=openai.omit, top_p=0, response_format={"type": "text"})


def test_a_control_token_shows_nothing(client: openai.OpenAI, live: Live) -> None:
    says(live, "a<|im_start|>b<|python_tag|>c")
    assert ask(client).choices[0].message.content == "abc"


def test_many_clients_at_once(client: openai.OpenAI, live: Live) -> None:
    def spell(request: GenerateRequest) -> list[int]:
        return [FIRST_WORD + WORDS.index("hello")] * 40

    live.service.reply = spell
    reply = ask(client, n=32)
    assert {choice.message.content for choice in reply.choices} == {"hello" * 40}
    assert live.service.running == 0
