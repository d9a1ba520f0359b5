"""Tools by the official client: chosen, forced, several, streamed; in each form that a template may have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from api.asking import ask, says, stream, text_of
from api.byte_tokenizer import CHATML
from api.fake_service import FakeService
from api.live import Live, serving
from ropeway.serving.sequence import Finish

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather somewhere.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer"}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
TIME = {"type": "function", "function": {"name": "now"}}
HERMES_TEMPLATE = CHATML + "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call>{% endif %}"
LLAMA_TEMPLATE = CHATML + "{% if tools %}{{ tools | tojson }}<|python_tag|>{% endif %}"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ulm", "days": 2}}\n</tool_call>'
LLAMA_CALL = '{"name": "get_weather", "parameters": {"city": "Ulm", "days": 2}}'


@pytest.fixture(scope="module", params=["plain", "hermes", "llama"])
def _formed(request: pytest.FixtureRequest) -> Iterator[tuple[Live, str]]:
    templates = {"plain": CHATML, "hermes": HERMES_TEMPLATE, "llama": LLAMA_TEMPLATE}
    with serving(FakeService(templates[request.param])) as live:
        yield live, request.param


@pytest.fixture
def formed(_formed: tuple[Live, str]) -> Live:
    """A server whose template has each of the forms in turn."""
    _formed[0].service.reset()
    says(_formed[0], LLAMA_CALL if _formed[1] == "llama" else CALL)
    return _formed[0]


@pytest.fixture
def tooled(formed: Live) -> Iterator[openai.OpenAI]:
    """The official client of `formed`."""
    with openai.OpenAI(base_url=f"{formed.url}/v1", api_key="none", max_retries=0, timeout=10) as made:
        yield made


def joined(chunks: Iterable[ChatCompletionChunk]) -> list[tuple[str, str]]:
    """The calls of a stream's first choice; each call's id and name come once, before its arguments."""
    calls: list[list[str]] = []
    for delta in (call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()):
        assert delta.function is not None
        if delta.index == len(calls):
            assert delta.id is not None
            assert delta.id.startswith("call_")
            assert delta.type == "function"
            calls.append([delta.function.name or "", delta.function.arguments or ""])
        else:
            assert delta.id is None
            assert delta.function.name is None
            calls[delta.index][1] += delta.function.arguments or ""
    return [(name, arguments) for name, arguments in calls]


def first_call(reply: ChatCompletion) -> Any:
    """The first call of a whole reply."""
    calls = reply.choices[0].message.tool_calls
    assert calls
    return calls[0]


def test_a_chosen_call(tooled: openai.OpenAI, formed: Live) -> None:
    reply = ask(tooled, tools=[WEATHER, TIME])
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    call = first_call(reply)
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Ulm", "days": 2}
    assert formed.service.requests[0].constraint is None
    prompt = bytes(token for token in formed.service.requests[0].prompt if token < 256)
    assert b"get_weather" in prompt


def test_a_streamed_call(tooled: openai.OpenAI) -> None:
    chunks = list(stream(tooled, tools=[WEATHER]))
    assert joined(chunks) == [("get_weather", '{"city": "Ulm", "days": 2}')]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert text_of(chunks) == ""
    assert sum(bool(chunk.choices[0].delta.tool_calls) for chunk in chunks) > 5


def test_text_stays_text(tooled: openai.OpenAI, formed: Live) -> None:
    says(formed, "It is {warm} in <Ulm>.")
    reply = ask(tooled, tools=[WEATHER])
    assert reply.choices[0].message.content == "It is {warm} in <Ulm>."
    assert reply.choices[0].message.tool_calls is None
    assert reply.choices[0].finish_reason == "stop"
    assert text_of(stream(tooled, tools=[WEATHER])) == "It is {warm} in <Ulm>."


def test_none_means_none(tooled: openai.OpenAI, formed: Live) -> None:
    reply = ask(tooled, tools=[WEATHER], tool_choice="none")
    assert reply.choices[0].message.content is not None
    assert "get_weather" in reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "stop"
    assert b"The weather somewhere" not in bytes(t for t in formed.service.requests[0].prompt if t < 256)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}], ids=["required", "named"]
)
def test_a_forced_call_meets_its_schema(tooled: openai.OpenAI, formed: Live, choice: Any, seed: int) -> None:
    formed.service.reply = lambda _: []  # any token that the grammar allows
    fields = {"tools": [WEATHER, TIME], "tool_choice": choice, "parallel_tool_calls": False, "seed": seed}
    reply = ask(tooled, **fields)
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.choices[0].message.content is None
    assert reply.choices[0].message.tool_calls is not None
    (call,) = reply.choices[0].message.tool_calls
    made: Any = call
    arguments = json.loads(made.function.arguments)
    if made.function.name == "get_weather":
        assert set(arguments) == {"city", "days"}
        assert isinstance(arguments["days"], int)
        assert len(arguments["city"]) <= 8
    else:
        assert (choice, made.function.name, arguments) == ("required", "now", {})
    assert joined(stream(tooled, **fields)) == [(made.function.name, made.function.arguments)]


def test_several_calls(tooled: openai.OpenAI, formed: Live) -> None:
    llama = formed.service.chat_template == LLAMA_TEMPLATE
    says(formed, f"{LLAMA_CALL}; {LLAMA_CALL}" if llama else f"Two.\n{CALL}\n{CALL}\n")
    reply = ask(tooled, tools=[WEATHER])
    calls: Any = reply.choices[0].message.tool_calls
    assert len(calls) == 2
    assert calls[0].id != calls[1].id
    assert reply.choices[0].message.content == (None if llama else "Two.")
    chunks = list(stream(tooled, tools=[WEATHER]))
    assert joined(chunks) == [(call.function.name, call.function.arguments) for call in calls]


def test_one_call_where_one_is_asked_for(tooled: openai.OpenAI, formed: Live) -> None:
    llama = formed.service.chat_template == LLAMA_TEMPLATE
    says(formed, f"{LLAMA_CALL}; {LLAMA_CALL}" if llama else f"{CALL}\n{CALL}")
    reply = ask(tooled, tools=[WEATHER], parallel_tool_calls=False)
    assert len(reply.choices[0].message.tool_calls or ()) == 1
    assert reply.choices[0].finish_reason == "tool_calls"
    assert [finish for _, finish in formed.service.ended] == [Finish.STOP]


def test_a_call_cut_by_length_says_so(tooled: openai.OpenAI) -> None:
    reply = ask(tooled, tools=[WEATHER], max_tokens=45)
    assert reply.choices[0].finish_reason == "length"
    call = first_call(reply)
    assert call.function.arguments.startswith('{"')
    assert not call.function.arguments.endswith("}")


def test_a_strict_function_keeps_its_schema_unforced(tooled: openai.OpenAI, formed: Live) -> None:
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    reply = ask(tooled, tools=[strict])
    assert formed.service.requests[0].constraint is not None
    call = first_call(reply)
    assert json.loads(call.function.arguments)["city"] == "Ulm"
    # The fake model goes on as the grammar wants where its own word may not stand.
    llama = formed.service.chat_template == LLAMA_TEMPLATE
    says(formed, (LLAMA_CALL if llama else CALL).replace('"days": 2', '"days": "two"'))
    call = first_call(ask(tooled, tools=[strict], seed=1))
    assert isinstance(json.loads(call.function.arguments)["days"], int)


def test_results_go_back(tooled: openai.OpenAI, formed: Live) -> None:
    first = ask(tooled, tools=[WEATHER]).choices[0].message
    assert first.tool_calls is not None
    says(formed, "Sunny.")
    messages = [
        {"role": "user", "content": "Ulm?"},
        first.model_dump(),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "22 degrees"},
    ]
    reply = ask(tooled, messages=messages, tools=[WEATHER])
    assert reply.choices[0].message.content == "Sunny."
    spelled = b"".join(map(formed.service.tokenizer.piece, formed.service.requests[-1].prompt))
    assert b"22 degrees" in spelled


def test_a_bad_schema_of_a_tool(formed: Live) -> None:
    bad = {"type": "function", "function": {"name": "f", "parameters": {"type": "nothing"}}}
    answer = formed.chat(tools=[bad], tool_choice="required")
    assert (answer.status, answer.error["param"], answer.error["code"]) == (400, "tools", "invalid_schema")
