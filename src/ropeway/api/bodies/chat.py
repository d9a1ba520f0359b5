"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from ropeway.api.bodies.common import MAX_LOGPROBS, Absent, Body, Generating, Int, JsonObject, at_most

MAX_MESSAGES: Final = 4096
MAX_PARTS: Final = 256
MAX_TOOLS: Final = 128
MAX_CALLS: Final = 128
MAX_TEMPLATE_ARGUMENTS: Final = 32

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
"""Of a function; OpenAI's letters and the dot."""


class TextPart(Body):
    """A part of a message's content; other kinds are refused."""

    type: Literal["text"]
    text: str


Content = str | Annotated[list[TextPart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)]


class Instruction(Body):
    """What the operator of a conversation says; `developer` is OpenAI's newer word for `system`."""

    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(Body):
    """What the user says."""

    role: Literal["user"]
    content: Content
    name: str | None = None


class CalledFunction(Body):
    """`arguments` is a JSON object in a string."""

    name: Name
    arguments: str


class ToolCall(Body):
    """A call that an earlier reply asked for."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Body):
    """An earlier reply."""

    role: Literal["assistant"]
    content: Content | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall] | None, Field(max_length=MAX_CALLS, fail_fast=True)] = None
    refusal: Absent = None
    audio: Absent = None
    function_call: Absent = None
    annotations: Annotated[list[None] | None, Field(max_length=0)] = None
    """Replies of OpenAI's carry an empty list."""


class ToolMessage(Body):
    """What a call gave."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: str | None = None


Message = Annotated[Instruction | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class JsonSchemaFormat(Body):
    """A JSON Schema that the reply must meet. `strict` changes nothing: the grammar is always kept."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextFormat(Body):
    """No constraint."""

    type: Literal["text"]


class JsonObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class SchemaFormat(Body):
    """A JSON value by a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchemaFormat


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | SchemaFormat, Field(discriminator="type")]


class Function(Body):
    """What may be called. With `strict` its arguments meet the schema even when the model chose to call it."""

    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    """The name of a function."""

    name: Name


class NamedTool(Body):
    """The function that must be called."""

    type: Literal["function"]
    function: NamedFunction


class ChatBody(Generating):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_tokens: Annotated[Int | None, Field(ge=1)] = None
    max_completion_tokens: Annotated[Int | None, Field(ge=1)] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Int | None, Field(ge=0, le=MAX_LOGPROBS)] = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool] | None, Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)] = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: Annotated[JsonObject | None, at_most(MAX_TEMPLATE_ARGUMENTS)] = None
    """Further variables for the chat template, such as enable_thinking."""
    modalities: Annotated[list[Literal["text"]] | None, Field(min_length=1, max_length=1)] = None

    audio: Absent = None
    function_call: Absent = None
    functions: Absent = None
    moderation: Absent = None
    prediction: Absent = None
    prompt_cache_options: Absent = None
    prompt_cache_retention: Absent = None
    reasoning_effort: Absent = None
    verbosity: Absent = None
    web_search_options: Absent = None

    @property
    def limit(self) -> int | None:
        """Tokens of the reply at most, where the body says so."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
