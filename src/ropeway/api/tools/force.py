"""Grammars around tool calls: calls that must come, and calls that keep their schema when they do come."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ropeway.api.tools.forms import CALL_CLOSE, CALL_OPEN, ToolForm

Json = dict[str, Any]

NO_ARGUMENTS: Final[Json] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function that may be called, and the schema of its arguments."""

    name: str
    parameters: Json | None


def calls_grammar(
    form: ToolForm,
    functions: Sequence[ToolFunction],
    literal: Callable[[str], str],
    *,
    forced: bool,
    several: bool,
    reply: Json | None = None,
) -> tuple[dict[str, Json], str]:
    """Schemas by name, and the Lark over them, for `grammar.from_parts`.

    `forced`: one call at least and no other text. Otherwise any text, or only JSON by the schema `reply` where there is
    one, and calls among it. `literal` writes a marker in Lark (`GrammarCompiler.literal`).
    """
    schemas = {f"args_{at}": function.parameters or NO_ARGUMENTS for at, function in enumerate(functions)}
    calls = "call (SEPARATOR call)*" if several else "call"
    lark = [
        f"SEPARATOR: {json.dumps(form.between)}",
        f"call: {' | '.join(f'call_{at}' for at in range(len(functions)))}",
    ]
    opening, closing = _markers(form, literal)
    lazy = not forced and reply is None and form is not ToolForm.LLAMA
    for at, function in enumerate(functions):
        head = json.dumps(
            f'{form.opening.removeprefix(CALL_OPEN)}{{"name": {json.dumps(function.name)}, "{form.argument_key}": '
        )
        tail = json.dumps(f"}}{form.closing.removesuffix(CALL_CLOSE)}")
        lark.append(f"call_{at}: {'' if lazy else opening} {head} @args_{at} {tail} {closing}")
    if forced:
        lark.append(f"start: {calls}")
    elif reply is not None:
        schemas["reply"] = reply
        lark.append(f"start: {calls} | @reply")
    elif form is ToolForm.LLAMA:
        # Text that begins like JSON is a call; <|python_tag|> is a control token and comes before one or not at all.
        lark += [f"start: {calls} | TEXT", r"TEXT: /([^\s{](.|\n)*)?/"]
    elif opening == json.dumps(CALL_OPEN):
        lark += [f"head[lazy]: TEXT {opening}", "tagged: head call", _start("tagged", several), r"TEXT: /(.|\n)*/"]
    else:
        lark += [f"tagged: TEXT {opening} call", _start("tagged", several), r"TEXT: /(.|\n)*/"]
    return schemas, "\n".join(lark) + "\n"


def _markers(form: ToolForm, literal: Callable[[str], str]) -> tuple[str, str]:
    return ("", "") if form is ToolForm.LLAMA else (literal(CALL_OPEN), literal(CALL_CLOSE))


def _start(call: str, several: bool) -> str:
    return f"start: {call}{'*' if several else '?'} TEXT"
