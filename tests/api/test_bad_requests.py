"""What is not supported or not right is a 400 that names the field."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from api.live import Live

USER = {"role": "user", "content": "x"}
TOOL = {"type": "function", "function": {"name": "f"}}


def call(arguments: str) -> dict[str, Any]:
    made = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [made]}


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"frequency": 1}, "frequency", "unknown_parameter"),
        ({"messages": [{**USER, "x": 1}]}, "messages[0].x", "unknown_parameter"),
        ({"functions": []}, "functions", "unsupported_parameter"),
        ({"reasoning_effort": "low"}, "reasoning_effort", "unsupported_parameter"),
        ({"store": True}, "store", "unsupported_parameter"),
        (
            {"stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
            "unsupported_parameter",
        ),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": None}, "messages", "invalid_type"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [USER, {"role": "user", "content": 5}]}, "messages[1].content", "invalid_type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
            "invalid_value",
        ),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content", "invalid_value"),
        ({"messages": [USER, call("[1]")]}, "messages[1].tool_calls[0].function.arguments", "invalid_value"),
        ({"temperature": 2.5}, "temperature", "invalid_value"),
        ({"temperature": "1"}, "temperature", "invalid_type"),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"top_p": -0.1}, "top_p", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": 1.5}, "max_tokens", "invalid_type"),
        ({"max_tokens": 4, "max_completion_tokens": 5}, "max_completion_tokens", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 33}, "n", "invalid_value"),
        ({"seed": 1 << 64}, "seed", "invalid_value"),
        ({"stop": ""}, "stop", "invalid_value"),
        ({"stop": ["a", ""]}, "stop[1]", "invalid_value"),
        ({"stop": ["a"] * 17}, "stop", "invalid_value"),
        ({"stop": 5}, "stop", "invalid_type"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x", "invalid_value"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "invalid_value"),
        ({"logit_bias": {"270": 1}}, "logit_bias", "invalid_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
        ({"modalities": ["audio"]}, "modalities[0]", "invalid_value"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", "invalid_value"),
        ({"tools": []}, "tools", "invalid_value"),
        ({"tools": [TOOL, TOOL]}, "tools", "invalid_value"),
        ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type", "invalid_value"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "invalid_value"),
        ({"tool_choice": "auto"}, "tool_choice", "invalid_value"),
        ({"parallel_tool_calls": True}, "parallel_tool_calls", "invalid_value"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice.function.name",
            "invalid_value",
        ),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice", "invalid_value"),
        ({"tools": [TOOL], "grammar": 'start: "a"'}, "grammar", "invalid_value"),
        ({"grammar": 'start: "a"', "response_format": {"type": "json_object"}}, "grammar", "invalid_value"),
        ({"grammar": "start: nothing"}, "grammar", "invalid_grammar"),
        ({"grammar": "root ::= ("}, "grammar", "invalid_grammar"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
    ],
)
def test_a_chat_names_the_field(live: Live, fields: dict[str, Any], param: str, code: str) -> None:
    answer = live.chat(**fields)
    assert answer.status == 400, answer.body
    assert answer.error["type"] == "invalid_request_error"
    assert (answer.error["param"], answer.error["code"]) == (param, code), answer.error
    assert live.service.requests == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [270]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "n"),
        ({"best_of": 1}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"messages": []}, "messages"),
    ],
)
def test_a_completion_names_the_field(live: Live, fields: dict[str, Any], param: str) -> None:
    answer = live.ask("POST", "/v1/completions", {"model": live.service.model_id, "prompt": "x", **fields})
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param, answer.error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b'{"model": NaN}',
        b"\xff",
        b'{"a": "\\ud800"}',
        b"[" * 100_000,
        b'{"n": 1e999}',
    ],
)
def test_a_body_that_is_no_object_is_refused(live: Live, body: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        answer = live.ask("POST", path, body)
        assert answer.status == 400
        assert answer.error["type"] == "invalid_request_error"


def test_a_long_prompt_names_both_numbers(client: openai.OpenAI, live: Live) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=live.service.model_id, prompt="x" * 2048)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "prompt"
    assert "2048 tokens. However, your prompt resulted in 2048 tokens" in caught.value.message
    answer = live.chat("x" * 10_000)
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("context_length_exceeded", "messages")
    assert "2048" in answer.error["message"]
    assert "100" in answer.error["message"]
    assert live.complete("x" * 2047).status == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "temperature"),
        ({"temperature": 0, "frequency_penalty": 0.5}, "frequency_penalty"),
        ({"temperature": 0, "logprobs": True}, "logprobs"),
        ({"temperature": 0, "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_a_placement_cannot_do_is_named(live: Live, fields: dict[str, Any], param: str) -> None:
    live.service.likeliest_alone = True
    answer = live.chat(**fields)
    assert (answer.status, answer.error["param"], answer.error["code"]) == (400, param, "unsupported_value")
    assert "the last rank chooses" in answer.error["message"]
    assert live.chat(temperature=0).status == 200


def test_another_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_a_template_that_refuses_is_a_bad_request(live: Live) -> None:
    answer = live.chat(chat_template_kwargs={"x": 1}, messages=[{"role": "tool", "content": "x", "tool_call_id": "1"}])
    assert answer.status == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {str(number): 1000 for number in range(50_000)}}, "logit_bias"),
        ({f"field{number}": 1 for number in range(50_000)}, None),
        ({"messages": [{"role": "user", "content": 5}] * 20_000}, "messages[0].content"),
        ({"messages": [USER] * 4097}, "messages"),
        ({"tools": [5] * 20_000}, "tools[0]"),
    ],
)
def test_many_errors_cost_no_more_than_one(live: Live, fields: dict[str, Any], param: str | None) -> None:
    answer = live.chat(**fields)
    assert (answer.status, answer.error["param"]) == (400, param)


def test_bodies_are_bounded_by_what_a_context_can_hold(live: Live) -> None:
    limit = (1 << 20) + 16 * live.service.context
    # Only the length is sent: a refused body need not be read, and a client that still sends it meets a closed socket.
    declared = {"Content-Type": "application/json", "Content-Length": str(limit + 1)}
    assert live.ask("POST", "/tokenize", None, declared).status == 413
    assert live.ask("POST", "/tokenize", b" " * limit).status == 400
