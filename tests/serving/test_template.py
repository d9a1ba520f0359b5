"""Chat templates: what transformers' environment gives, and what a hostile file cannot do."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ropeway.checkpoints.demo import resolve_model
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.serving.text import ChatTemplate, TemplateError

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <brief>."},
    {"role": "user", "content": "Grüße & 'hello'"},
    {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"x": [1, 2.5, "é"]}}]},
    {"role": "tool", "content": "42"},
    {"role": "user", "content": [{"type": "text", "text": "and now?"}]},
]

DEMO = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou "
    "are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + "
    "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\n' }}{% endif %}"
)
"""The demo model's own."""

IDIOMS = [
    """{%- set ns = namespace(system='', turns=0) %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = ns.system ~ message['content'] | trim %}
    {%- elif message.content is string %}
        {%- set ns.turns = ns.turns + 1 %}
{{ '[' ~ message.role | upper ~ ' ' ~ ns.turns ~ '] ' + message.content }}
    {%- elif message.content is none and message.tool_calls is defined %}
        {%- for call in message.tool_calls %}{{ call | tojson }}{{ call.arguments | tojson(indent=2) }}{% endfor %}
    {%- else %}
        {%- for part in message.content if part.type == 'text' %}{{ part.text }}{{ ' ' if not loop.last }}{% endfor %}
    {%- endif %}
{%- endfor %}
{{ ns.system }}{{ eos_token }}""",
    """{% macro show(message, depth=1) %}
{{ '#' * depth }} {{ message['role'] }}
{% endmacro %}
{% for message in messages[1:] | reverse %}
  {% if loop.index0 == 3 %}{% break %}{% endif %}
  {{ show(message, loop.index) }}
{% endfor %}
{% set names = messages | map(attribute='role') | list %}
{{ names | join(', ') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{%- if tools %}{{ tools | tojson }}{% endif %}""",
    """{% filter upper %}{{ bos_token }}abc{% endfilter %}
{% set block %}{{ 'a,b'.split(',') | last }} {{ '%s-%05.1f' % ('x', 2.25) }} {{ '{} {:>4}'.format(1, 'r') }}{% endset %}
{{ block.replace(' ', '_') }} {{ {'b': 1, 'a': none}.items() | list }} {{ [1, 2] + [3] }} {{ 7 // 2 * 3 ** 2 }}
{%- for key, value in {'z': 1, 'y': 2} | dictsort %} {{ key }}={{ value }}{% endfor %} {{ messages[0].content[3:-1] }}
{%- for n in [[1, [2]], [3]] recursive %} {{ n if n is number else loop(n) }}{% endfor %}
{% macro asked() %}{{ caller('c') }}{% endmacro %}{% call(x) asked() %}{{ x }}{% endcall %}""",
]


def plain(source: str, **given: Any) -> str:
    """The environment that transformers makes, without our guards."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    return environment.from_string(source).render(**given)


def test_the_demo_models_template() -> None:
    template = ChatTemplate(DEMO)
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    hello = [{"role": "user", "content": "Say hello"}]
    turn = "<|im_start|>user\nSay hello<|im_end|>\n"
    assert template.render(hello) == system + turn + "<|im_start|>assistant\n"
    assert template.render(hello, add_generation_prompt=False) == system + turn
    assert template.render(MESSAGES[:1] + hello) == (
        "<|im_start|>system\nBe <brief>.<|im_end|>\n" + turn + "<|im_start|>assistant\n"
    )


@pytest.mark.model
def test_the_demo_models_template_is_this_one() -> None:
    assert GgufFile.open(resolve_model("demo")).metadata["tokenizer.chat_template"] == DEMO


@pytest.mark.parametrize("source", IDIOMS)
@pytest.mark.parametrize("tools", [[], [{"type": "function", "function": {"name": "f"}}]])
def test_idioms_render_as_with_transformers(source: str, tools: list[dict[str, Any]]) -> None:
    ours = ChatTemplate(source, "<s>", "</s>").render(MESSAGES, tools=tools)
    theirs = plain(
        source,
        messages=MESSAGES,
        tools=tools or None,
        bos_token="<s>",
        eos_token="</s>",
        add_generation_prompt=True,
        documents=None,
    )
    assert ours == theirs


def test_what_transformers_adds() -> None:
    template = ChatTemplate(
        "{{ strftime_now('%d %b %Y') }}|{% generation %}{% set inner = 1 %}{{ inner }}{% endgeneration %}|{{ inner }}|"
        "{{ enable_thinking }}|{{ {'a': '<é>'} | tojson }}",
        now=lambda: datetime(2026, 11, 30, 12, 0),  # noqa: DTZ001
    )
    assert template.render([], extra={"enable_thinking": False}) == '30 Nov 2026|1||False|{"a": "<é>"}'


def test_a_template_may_refuse_the_messages() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateError, match=r"^roles must alternate$") as caught:
        template.render([])
    assert caught.value.refused


def test_messages_are_data_and_never_a_template() -> None:
    text = "{{ 1 + 1 }}{% for x in y %}"
    assert ChatTemplate("{{ messages[0].content }}").render([{"content": text}]) == text


DOUBLING = "{%% set ns = namespace(s=%s) %%}{%% for i in range(60) %%}{%% set ns.s = %s %%}{%% endfor %%}{{ ns.s %s }}"

HOSTILE = {
    "class": "{{ ''.__class__ }}",
    "class by item": "{{ ''['__class__'] }}",
    "class by filter": "{{ ''|attr('__class__') }}",
    "class by map": "{{ [''] | map(attribute='__class__') | list }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "globals of a macro": "{% macro m() %}{% endmacro %}{{ m.__init__ }}",
    "globals of ours": "{{ raise_exception.__globals__ }}",
    "format": "{{ '{0.__class__}'.format(1) }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "context": "{{ self._TemplateReference__context }}",
    "changes the messages": "{{ messages.append(1) }}",
    "changes a message": "{{ messages[0].update(role='system') }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "endless": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "endless text": "{% for a in range(99999) %}" + "x" * 10_000 + "{% endfor %}",
    "endless macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "endless block": "{% block a %}{{ self.a() }}{% endblock %}",
    "endless loop()": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "range": "{{ range(10**9) | list }}",
    "product": "{{ 'x' * 10**10 }}",
    "product of a list": "{{ 10**10 * [1] }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "round": "{{ 1 | round(-1000000000) }}",
    "% width": "{{ '%1000000000d' % 1 }}",
    "% star": "{{ '%*d' % (10**9, 1) }}",
    "% of a filter": "{{ '%1000000000d' | format(1) }}",
    "{} width": "{{ '{:1000000000}'.format(1) }}",
    "{} inner width": "{{ '{:{}}'.format(1, 10**9) }}",
    "center": "{{ 'x'.center(10**10) }}",
    "indent": "{{ 'a\nb' | indent(10**9) }}",
    "json indent": "{{ [1] | tojson(indent=10**9) }}",
    "bytes": "{{ 'x'.encode().center(10**10) }}",
    "integer": "{{ (5).to_bytes(10**9, 'big') }}",
    "translate": "{{ 'aaaa'.translate({97: 'x' * 9999}) }}",
    "date": "{{ strftime_now('%Y' * 9999) }}",
    "join": "{{ ('x' * 99999).join(['a'] * 99999) }}",
    "replace": "{{ 'a' | replace('', 'b' * 1000) | replace('b', 'c' * 1000) | replace('c', 'd' * 1000) }}",
    "doubled by ~": DOUBLING % ("'x'", "ns.s ~ ns.s", ""),
    "doubled by +": DOUBLING % ("'x'", "ns.s + ns.s", ""),
    "doubled by *": DOUBLING % ("'x'", "ns.s * 2", ""),
    "doubled by %": DOUBLING % ("'x'", "'%s%s' % (ns.s, ns.s)", ""),
    "doubled by format": DOUBLING % ("'x'", "'{0}{0}'.format(ns.s)", ""),
    "doubled by join": DOUBLING % ("'x'", "[ns.s, ns.s] | join", ""),
    "doubled by replace": DOUBLING % ("'x'", "ns.s.replace('x', 'xx')", ""),
    "doubled list": DOUBLING % ("[1]", "ns.s + ns.s", ""),
    "doubled by sum": DOUBLING % ("[1]", "[ns.s, ns.s] | sum(start=[])", ""),
    "nested list printed": DOUBLING % ("[1]", "[ns.s, ns.s]", ""),
    "nested list as JSON": DOUBLING % ("[1]", "[ns.s, ns.s]", "| tojson"),
    "nested list as string": DOUBLING % ("[1]", "[ns.s, ns.s]", "| string | length"),
    "doubled by set": "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}"
    "{% endset %}{% endfor %}",
    "constants": "{{ 'aaaaaaaaaa'" + " | replace('a', 'aaaaaaaaaa')" * 12 + " }}",
    "syntax": "{% for x in messages %}",
    "nesting": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "too long": " " * ((1 << 20) + 1),
    "unknown filter": "{{ 1 | center }}",
    "division": "{{ 1 / 0 }}",
    "undefined": "{{ nothing.at.all }}",
    "types": "{{ 'a' + 1 }}",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(30)
def test_hostile_templates_end_in_a_template_error(name: str) -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(HOSTILE[name]).render([{"role": "user", "content": "hi"}])
    assert not caught.value.refused
    assert 10 < len(str(caught.value)) < 700


def test_a_budget_is_for_one_rendering() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    long = [{"role": "user", "content": "x" * 100_000}] * 20
    for _ in range(20):
        assert len(template.render(long)) == 2_000_000
