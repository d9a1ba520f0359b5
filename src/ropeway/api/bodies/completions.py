"""The body of POST /v1/completions, the older form: text in, text out, no template."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from ropeway.api.bodies.common import MAX_LOGPROBS, Absent, Generating, Int, token_ids

MAX_PROMPTS: Final = 128
MAX_REPLIES: Final = 128
"""Prompts times n."""

DEFAULT_MAX_TOKENS: Final = 16
"""OpenAI's."""

Prompt = str | list[int]


def _prompts(value: object) -> list[Prompt]:
    """One prompt or several: text, or token ids. By hand, since pydantic would judge each id of a list four times."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if isinstance(value[0], (int, float)):
            return [token_ids(value)]
        if len(value) > MAX_PROMPTS:
            raise PydanticCustomError("too_long", "At most {most} prompts are taken.", {"most": MAX_PROMPTS})
        if all(isinstance(prompt, str) for prompt in value):
            return value
        if all(isinstance(prompt, list) and prompt for prompt in value):
            return [token_ids(prompt) for prompt in value]
    raise PydanticCustomError("prompt", "Expected a string, token ids, or a list of several of one of these.")


_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_PROMPTS},
        _TOKENS,
        {"type": "array", "items": _TOKENS, "minItems": 1, "maxItems": MAX_PROMPTS},
    ]
}


class CompletionBody(Generating):
    """The body of POST /v1/completions. `prompt` is a list here, whatever was sent."""

    prompt: Annotated[list[Prompt], PlainValidator(_prompts), WithJsonSchema(_PROMPT_SCHEMA)]
    max_tokens: Annotated[Int | None, Field(ge=0)] = None
    echo: bool | None = None
    logprobs: Annotated[Int | None, Field(ge=0, le=MAX_LOGPROBS)] = None
    best_of: Absent = None
    suffix: Absent = None

    @property
    def limit(self) -> int:
        """Tokens of the reply at most."""
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
