"""What clients get back, as typed dictionaries: OpenAI's shapes, to the field."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

FinishReason = Literal["stop", "length", "tool_calls"]


class PromptDetails(TypedDict):
    """Prompt tokens that came from the prompt cache."""

    cached_tokens: int


class Usage(TypedDict):
    """Tokens read and tokens made; end tokens and the tokens of a stop string were made, too."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class TopLogprob(TypedDict):
    """A token that could have been chosen."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TypedDict):
    """A token that was chosen, and the likeliest ones in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    """The log-probabilities of a message's or a chunk's tokens."""

    content: list[ChatLogprob]
    refusal: None


class FunctionCall(TypedDict):
    """`arguments` is JSON in a string."""

    name: str
    arguments: str


class Call(TypedDict):
    """A tool call."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class Message(TypedDict):
    """The reply to a conversation."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[Call]]


class ChatChoice(TypedDict):
    """One of n replies."""

    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(TypedDict):
    """The reply of POST /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str


class FunctionDelta(TypedDict, total=False):
    """More of a call: its name at first, then its arguments."""

    name: str
    arguments: str


class CallDelta(TypedDict):
    """More of the tool call `index`; its id and type come with the first."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class Delta(TypedDict, total=False):
    """More of a message."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[CallDelta]


class ChunkChoice(TypedDict):
    """More of one of n replies; its finish reason comes with its last chunk."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatChunk(TypedDict):
    """An event of a chat's stream. `usage` is there when it was asked for, and null in all but the last chunk."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: NotRequired[Usage | None]


class TextLogprobs(TypedDict):
    """The older form: one list a property, one entry a token. `text_offset` counts characters from the text's start."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(TypedDict):
    """One reply, or more of it in a stream."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason | None


class TextCompletion(TypedDict):
    """The reply of POST /v1/completions, and each event of its stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: NotRequired[Usage | None]


class Model(TypedDict):
    """A model that can be asked."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int


class ModelList(TypedDict):
    """All of them: one."""

    object: Literal["list"]
    data: list[Model]


class Tokenized(TypedDict):
    """The reply of POST /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(TypedDict):
    """The reply of POST /detokenize."""

    prompt: str


class Alive(TypedDict):
    """The reply of GET /health and GET /ready."""

    status: str
    model: str
    placement: str


def usage(prompt: int, completion: int, cached: int) -> Usage:
    """A request's usage."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
