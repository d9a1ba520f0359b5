"""From messages to a prompt's token ids: the template's values, tools included, and the tokens of its text.

Rendering and tokenizing may take long: not for an event loop.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from ropeway.api.bodies.chat import AssistantMessage, Message, Tool, ToolMessage
from ropeway.api.errors import bad_request, too_long
from ropeway.api.front import Front
from ropeway.api.tools.forms import ToolForm, plain_messages
from ropeway.serving.service import PromptTooLong
from ropeway.serving.text import TemplateError

Json = dict[str, Any]

RESERVED: Final = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""Variables of a template that a request cannot set."""

BETWEEN_PARTS: Final = "\n"
"""Several text parts of one message become one text."""


def chat_prompt(
    front: Front,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (),
    extra: Json | None = None,
    *,
    add_generation_prompt: bool = True,
) -> list[int]:
    """The ids of a conversation's prompt. Raises ApiError (400)."""
    if reserved := RESERVED & (extra or {}).keys():
        raise bad_request(f"chat_template_kwargs cannot set {min(reserved)}.", f"chat_template_kwargs.{min(reserved)}")
    given = [_message(at, message) for at, message in enumerate(messages)]
    listed = [tool.model_dump(exclude_none=True) for tool in tools]
    if front.form is ToolForm.PLAIN:
        given, listed = plain_messages(given, listed), []
    try:
        text = front.template.render(given, add_generation_prompt=add_generation_prompt, tools=listed, extra=extra)
    except TemplateError as error:
        reason = f"The chat template refuses these messages: {error}" if error.refused else str(error)
        raise bad_request(reason, "messages", "template_refused") from None
    return front.service.tokenizer.tokenize(text, add_special=False, parse_special=True)


def text_prompt(front: Front, text: str) -> list[int]:
    """The ids of a plain prompt, with the tokens that the model wants in front."""
    return front.service.tokenizer.tokenize(text, add_special=True, parse_special=True)


def check_length(front: Front, prompt: Sequence[int], param: str) -> None:
    """Raises ApiError (400) for a prompt that leaves no room for a reply, or for none."""
    if len(prompt) >= front.service.context:
        raise too_long(PromptTooLong(len(prompt), front.service.context), param)
    if not prompt:
        raise bad_request("The prompt has no tokens.", param)


def check_tokens(front: Front, tokens: Sequence[int], param: str) -> None:
    """Raises ApiError (400) for an id outside the vocabulary."""
    size = front.service.tokenizer.size
    if tokens and max(tokens) >= size:
        raise bad_request(f"Token {max(tokens)} is outside the vocabulary of {size}.", param)


def _message(at: int, message: Message) -> Json:
    """A message as templates know it: one text, arguments of calls as objects, no keys without a value."""
    content = message.content
    text = content if content is None or isinstance(content, str) else BETWEEN_PARTS.join(part.text for part in content)
    value: Json = {"role": "system" if message.role == "developer" else message.role, "content": text or ""}
    if message.name is not None:
        value["name"] = message.name
    if isinstance(message, ToolMessage):
        value["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage):
        if message.tool_calls:
            value["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.function.name,
                        "arguments": _arguments(
                            call.function.arguments, f"messages[{at}].tool_calls[{number}].function.arguments"
                        ),
                    },
                }
                for number, call in enumerate(message.tool_calls)
            ]
        elif content is None:
            raise bad_request("An assistant message needs content or tool_calls.", f"messages[{at}].content")
    return value


def _arguments(text: str, param: str) -> Json:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise bad_request("A call's arguments must be a JSON object in a string.", param)
    return value
