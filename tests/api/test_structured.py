"""Structured output: what the grammar allows is all that can come, whatever the model would say."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from api.asking import ask, says, stream, text_of
from api.live import Live

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def shaped(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}


@pytest.mark.parametrize("seed", range(10))
def test_a_reply_meets_its_schema(client: openai.OpenAI, live: Live, seed: int) -> None:
    live.service.reply = lambda _: []  # any token that the grammar allows
    reply = ask(client, response_format=shaped(PERSON), seed=seed)
    assert reply.choices[0].finish_reason == "stop"
    value = json.loads(reply.choices[0].message.content or "")
    assert list(value) == ["name", "age", "tags"]
    assert 0 <= value["age"] <= 150
    assert len(value["name"]) <= 6
    assert set(value["tags"]) <= {"a", "b"}
    assert text_of(stream(client, response_format=shaped(PERSON), seed=seed)) == reply.choices[0].message.content


def test_each_choice_has_a_state_of_its_own(client: openai.OpenAI, live: Live) -> None:
    live.service.reply = lambda _: []
    reply = ask(client, response_format=shaped(PERSON), n=4, seed=1)
    for choice in reply.choices:
        assert set(json.loads(choice.message.content or "")) == {"name", "age", "tags"}


def test_json_object(client: openai.OpenAI, live: Live) -> None:
    says(live, 'Well: {"a": [1, 2]} and more')
    reply = ask(client, response_format={"type": "json_object"}, seed=5, max_tokens=300)
    assert (reply.choices[0].message.content or "").lstrip()[0] == "{"
    says(live, '{"a": [1, 2]}')
    assert json.loads(ask(client, response_format={"type": "json_object"}).choices[0].message.content or "") == {
        "a": [1, 2]
    }


@pytest.mark.parametrize(
    "grammar",
    ['start: "x" /[0-9]{2}/ ("yes" | "no")', 'root ::= "x" digit digit end\ndigit ::= [0-9]\nend ::= "yes" | "no"'],
)
def test_lark_and_gbnf(client: openai.OpenAI, live: Live, grammar: str) -> None:
    live.service.reply = lambda _: []
    for seed in range(5):
        reply = ask(client, extra_body={"grammar": grammar}, seed=seed)
        assert re.fullmatch(r"x[0-9]{2}(yes|no)", reply.choices[0].message.content or "")
        text = client.completions.create(
            model=live.service.model_id, prompt="x", extra_body={"grammar": grammar}, seed=seed
        )
        assert re.fullmatch(r"x[0-9]{2}(yes|no)", text.choices[0].text)


def test_a_schema_beside_tools(client: openai.OpenAI, live: Live) -> None:
    tool = {"type": "function", "function": {"name": "now"}}
    says(live, '{"name": "a", "age": 5, "tags": []}')
    fields: dict[str, Any] = {"tools": [tool], "response_format": shaped(PERSON)}
    assert json.loads(ask(client, **fields).choices[0].message.content or "")["age"] == 5
    says(live, '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    reply = ask(client, **fields)
    assert reply.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nothing"},
        {"type": "string", "pattern": "("},
        {"not": {"type": "string"}},
        {"$ref": "#"},
        {"$ref": "http://example.com/schema"},
        {"type": "array", "uniqueItems": True},
        {"type": "string", "minLength": 3, "maxLength": 1},
        {"description": "x" * 300_000},
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(live: Live, schema: dict[str, Any]) -> None:
    answer = live.chat(response_format=shaped(schema))
    assert answer.status == 400
    assert (answer.error["param"], answer.error["code"]) == ("response_format", "invalid_schema")


def test_a_schema_may_not_nest_without_end(live: Live) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(70):
        schema = {"type": "array", "items": schema}
    answer = live.chat(response_format=shaped(schema))
    assert answer.status == 400
    assert "deeper" in answer.error["message"]


def test_a_grammar_that_fails_on_its_way_is_told(live: Live) -> None:
    says(live, "x" * 400)
    grammar = 'start: a a a a a a a\na: b*\nb: c*\nc: "x"*'
    answer = live.chat(grammar=grammar)
    assert answer.status == 400
    assert answer.error["code"] == "grammar_failed"
    events = live.chat(grammar=grammar, stream=True).events
    assert events[-1]["error"]["code"] == "grammar_failed"
