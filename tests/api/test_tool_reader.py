"""Tool calls out of text: both forms, whatever the cuts of the text."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.api.tools.forms import ToolForm, form_of, plain_messages
from ropeway.api.tools.json_text import ObjectEnd, Verdict, read_head
from ropeway.api.tools.reader import CallArguments, CallBegan, Piece, Text, ToolReader

HERMES, LLAMA = ToolForm.HERMES, ToolForm.LLAMA
NAMES = ("f", "g")
Read = tuple[str, list[tuple[str, str]]]

CASES: list[tuple[ToolForm, str, Read]] = [
    (HERMES, "Hello < world", ("Hello < world", [])),
    (HERMES, "", ("", [])),
    (HERMES, "blanks  \n", ("blanks  \n", [])),
    (
        HERMES,
        (
            'Sure.\n<tool_call>\n{"name": "f", "arguments": {"a": "}\\"</tool_call>"}}\n</tool_call>\n'
            '<tool_call>\n{"name":"g","arguments":{}}\n</tool_call>\n'
        ),
        ("Sure.", [("f", '{"a": "}\\"</tool_call>"}'), ("g", "{}")]),
    ),
    (HERMES, '<tool_call>{"arguments": {"x": [1]}, "name": "f"}</tool_call>', ("", [("f", '{"x": [1]}')])),
    (HERMES, '<tool_call>{"arguments": {"x": 1}, "name": "f"}', ("", [("f", '{"x": 1}')])),
    (HERMES, '<tool_call>{"name": "f"}</tool_call>', ("", [("f", "{}")])),
    (
        HERMES,
        '<tool_call>{"name": "f", "arguments": "x"}</tool_call>',
        ('<tool_call>{"name": "f", "arguments": "x"}</tool_call>', []),
    ),
    (
        HERMES,
        '<tool_call>{"name": "no", "arguments": {}}</tool_call> a',
        ('<tool_call>{"name": "no", "arguments": {}}</tool_call> a', []),
    ),
    (HERMES, "a <tool_ b <tool_call> c </tool_call> d", ("a <tool_ b <tool_call> c </tool_call> d", [])),
    (HERMES, 'x <tool_call>{"name": "f", "arguments": {"a": 1', ("x", [("f", '{"a": 1')])),
    (HERMES, 'x  <tool_call>{"name"', ('x  <tool_call>{"name"', [])),
    (HERMES, '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_c', ("", [("f", "{}")])),
    (HERMES, '<tool_call>{"name": "f", "arguments": {}}</tool_call> end', (" end", [("f", "{}")])),
    (LLAMA, '{"name": "f", "parameters": {"a": 1}}', ("", [("f", '{"a": 1}')])),
    (
        LLAMA,
        '<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        ("", [("f", '{"a": 1}'), ("g", "{}")]),
    ),
    (LLAMA, ' {"type": "function", "name": "f", "parameters": {"a": [1, "}"]}}\n', ("", [("f", '{"a": [1, "}"]}')])),
    (LLAMA, '{"name": "no", "parameters": {}}', ('{"name": "no", "parameters": {}}', [])),
    (LLAMA, 'Hello {"name": "f", "parameters": {}}', ('Hello {"name": "f", "parameters": {}}', [])),
    (LLAMA, '{"a": 1}', ('{"a": 1}', [])),
    (LLAMA, "<|python_tag|>print(1)", ("<|python_tag|>print(1)", [])),
    (LLAMA, '{"name": "f", "parameters": {}} and', (" and", [("f", "{}")])),
    (LLAMA, '  {"na', ('  {"na', [])),
]


def read(reader: ToolReader, pieces: list[str]) -> Read:
    """Text and calls; also holds that indices rise and that nothing follows `done`."""
    found: list[Piece] = []
    for piece in pieces:
        found += reader.push(piece)
    found += [] if reader.done else reader.flush()
    text, calls = "", list[list[str]]()
    for item in found:
        match item:
            case Text(more):
                text += more
            case CallBegan(index, name):
                assert index == len(calls)
                calls.append([name, ""])
            case CallArguments(index, more):
                assert index == len(calls) - 1
                calls[index][1] += more
    assert reader.calls == len(calls)
    return text, [(name, arguments) for name, arguments in calls]


@pytest.mark.parametrize(("form", "text", "wanted"), CASES)
def test_whole(form: ToolForm, text: str, wanted: Read) -> None:
    assert read(ToolReader(form, NAMES), [text]) == wanted


@given(st.sampled_from(CASES), st.lists(st.integers(0, 150), max_size=8))
def test_any_cuts_give_the_same(case: tuple[ToolForm, str, Read], at: list[int]) -> None:
    form, text, wanted = case
    edges = [0, *sorted(min(cut, len(text)) for cut in at), len(text)]
    pieces = [text[first:end] for first, end in itertools.pairwise(edges)]
    assert read(ToolReader(form, NAMES), pieces) == wanted


@pytest.mark.parametrize(("form", "text", "wanted"), CASES)
def test_a_character_at_a_time(form: ToolForm, text: str, wanted: Read) -> None:
    assert read(ToolReader(form, NAMES), list(text)) == wanted


@pytest.mark.parametrize("case", [case for case in CASES if len(case[2][1]) == 2])
def test_one_call_is_enough(case: tuple[ToolForm, str, Read]) -> None:
    form, text, (before, calls) = case
    reader = ToolReader(form, NAMES, several=False)
    assert read(reader, [text]) == (before, calls[:1])
    assert reader.done


def test_arguments_come_as_they_are_written() -> None:
    reader = ToolReader(HERMES, NAMES)
    pieces = [reader.push(text) for text in ('<tool_call>{"name": "f", "arguments": {"a"', ": 1", "}", "}</tool_call>")]
    assert pieces[0] == [CallBegan(0, "f"), CallArguments(0, '{"a"')]
    assert pieces[1:] == [[CallArguments(0, ": 1")], [CallArguments(0, "}")], []]


@given(st.text(max_size=60))
def test_any_text_is_kept(text: str) -> None:
    for form in (HERMES, LLAMA):
        assert read(ToolReader(form, ()), [text]) == (text, [])


@given(st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.text(max_size=5), st.lists, max_leaves=4)))
def test_an_object_ends_where_json_ends_it(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert ObjectEnd().push(text + "}]x") == len(text)
    end = ObjectEnd()
    assert [end.push(char) for char in text] == [*[-1] * (len(text) - 1), 1]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", Verdict.OPEN),
        ("{", Verdict.OPEN),
        ('{ "na', Verdict.OPEN),
        ('{"name" : "f', Verdict.OPEN),
        ('{"name": "f", "arguments": ', Verdict.OPEN),
        ('{"name": "f", "arguments": {', Verdict.CALL),
        ('{"name": "f", "arguments": [', Verdict.OTHER),
        ('{"name": 5', Verdict.OTHER),
        ('{"type": "object"', Verdict.OTHER),
        ('{"x', Verdict.OTHER),
        ("[", Verdict.OTHER),
    ],
)
def test_heads(text: str, verdict: Verdict) -> None:
    assert read_head(text).verdict is verdict


def test_forms_of_templates() -> None:
    assert form_of("{% if tools %}<tools>...<tool_call>{% endif %}") is HERMES
    assert form_of("{% if tools %}ipython {'name': ..., \"parameters\": ...}{% endif %}") is LLAMA
    assert form_of("{{ tools }}<|python_tag|>") is LLAMA
    assert form_of("{% if tools %}<tool_call><function=f>{% endif %}") is ToolForm.PLAIN
    assert form_of("{{ messages }}") is ToolForm.PLAIN


def test_a_plain_template_is_told_in_words() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]
    said = plain_messages(
        [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "content": "5", "tool_call_id": "1"},
        ],
        [tool],
    )
    assert [message["role"] for message in said] == ["system", "user", "assistant", "user"]
    assert json.dumps(tool) in said[0]["content"]
    assert said[2]["content"] == '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert said[3]["content"] == "<tool_response>\n5\n</tool_response>"
    system = plain_messages([{"role": "system", "content": "Be kind."}], [tool])
    assert len(system) == 1
    assert system[0]["content"].startswith("Be kind.\n\n# Tools")
