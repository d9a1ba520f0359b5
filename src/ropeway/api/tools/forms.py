"""The forms in which models write tool calls, and what a prompt must hold for them.

Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, after any text. Llama 3: the whole reply is
{"name": ..., "parameters": {...}}, <|python_tag|> before it or not, several with ; between them. A model whose template
knows neither is told of the Hermes form in a system message (`plain_messages`), so that every model can be given tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

Json = dict[str, Any]

CALL_OPEN: Final = "<tool_call>"
CALL_CLOSE: Final = "</tool_call>"
PYTHON_TAG: Final = "<|python_tag|>"
MARKERS: Final = (CALL_OPEN, CALL_CLOSE, PYTHON_TAG)

_INSTRUCTIONS: Final = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


class ToolForm(Enum):
    """How calls are written; PLAIN is Hermes's form with our own instructions."""

    HERMES = "hermes"
    LLAMA = "llama"
    PLAIN = "plain"

    @property
    def argument_key(self) -> str:
        """The JSON key of a call's arguments."""
        return "parameters" if self is ToolForm.LLAMA else "arguments"

    @property
    def opening(self) -> str:
        """What stands before the JSON of a call."""
        return "" if self is ToolForm.LLAMA else f"{CALL_OPEN}\n"

    @property
    def closing(self) -> str:
        """What stands behind it."""
        return "" if self is ToolForm.LLAMA else f"\n{CALL_CLOSE}"

    @property
    def between(self) -> str:
        """What parts two calls."""
        return "; " if self is ToolForm.LLAMA else "\n"


def form_of(template: str) -> ToolForm:
    """The form that a chat template's text speaks of."""
    if "<function=" in template:  # Qwen3-Coder's own form: its template would contradict ours, and goes without tools
        return ToolForm.PLAIN
    if CALL_OPEN in template and "tools" in template:
        return ToolForm.HERMES
    if "tools" in template and (PYTHON_TAG in template or ("ipython" in template and '"parameters"' in template)):
        return ToolForm.LLAMA
    return ToolForm.PLAIN


def plain_messages(messages: Sequence[Mapping[str, Any]], tools: Sequence[Json]) -> list[Json]:
    """Messages for a template that knows no tools: instructions in the system message, calls and results as text."""
    plain = [_plain(message) for message in messages]
    if tools:
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        instructions = _INSTRUCTIONS.format(tools=listed)
        if plain and plain[0]["role"] == "system":
            plain[0] = {**plain[0], "content": f"{plain[0]['content']}\n\n{instructions}"}
        else:
            plain.insert(0, {"role": "system", "content": instructions})
    return plain


def _plain(message: Mapping[str, Any]) -> Json:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if message["role"] != "assistant" or "tool_calls" not in message:
        return dict(message)
    calls = [json.dumps(_call(call["function"]), ensure_ascii=False) for call in message["tool_calls"]]
    written = "\n".join(f"{CALL_OPEN}\n{call}\n{CALL_CLOSE}" for call in calls)
    content = message["content"]
    return {"role": "assistant", "content": f"{content}\n{written}" if content else written}


def _call(function: Json) -> Json:
    return {"name": function["name"], "arguments": function["arguments"]}
